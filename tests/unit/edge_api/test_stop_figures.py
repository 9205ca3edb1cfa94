"""What processes say of themselves in their leases, on /metrics."""

from __future__ import annotations

from baton_contracts.heartbeats import Lease
from baton_edge_api.metrics import Metrics
from baton_edge_api.stop_figures import StopCollector


def test_spans_that_were_dropped_are_counted_by_process() -> None:
    leases = [
        Lease(service="engine_worker", instance="engine_worker-1", state="ready", spans_dropped=3),
        Lease(service="edge_api", instance="edge_api-1", state="ready"),
    ]
    metrics = Metrics(list)
    metrics.registry.register(StopCollector(lambda: leases))
    lines = metrics.text().decode().splitlines()
    assert 'baton:spans_dropped_total{instance="engine_worker-1",service="engine_worker"} 3.0' in lines
    assert 'baton:spans_dropped_total{instance="edge_api-1",service="edge_api"} 0.0' in lines
