"""What every process of the relay says of itself in its lease, as counters on /metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from baton_contracts.heartbeats import Lease


class StopCollector(Collector):
    def __init__(self, living: Callable[[], list[Lease]]) -> None:
        self._living = living

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        text = "Batches of spans that nobody will read: the bus was away for too long, or too small."
        dropped = CounterMetricFamily("baton:spans_dropped", text, labels=("service", "instance"))
        for lease in self._living():
            dropped.add_metric((lease.service, lease.instance), lease.spans_dropped or 0)
        yield dropped
