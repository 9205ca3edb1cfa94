"""What the limits did, as counters on /metrics. Labels are kinds, never names of keys, teams or models; a
budget's alert is in the log too, by name."""

from __future__ import annotations

import logging
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge

from baton_edge_api.limits.standing import View

log = logging.getLogger(__name__)


class LimitFigures:
    def __init__(self, registry: CollectorRegistry, num_held: Callable[[], int]) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        self.admitted = counter("baton:limit_admitted", "Limited requests that were let in.")
        self._refused = counter("baton:limit_refused", "Requests over a limit.", "party", "kind")
        self.released = counter("baton:limit_released", "Let in, refused further on, given back.")
        self.settled = counter("baton:limit_settled", "Let in and settled with what was used.")
        self.lost_runs = counter(
            "baton:limit_lost_runs", "Reservations of edges that were lost, settled from the ledger."
        )
        tokens = counter("baton:limit_tokens", "Tokens of limited requests.", "event")
        self._reserved, self._used = tokens.labels("reserved"), tokens.labels("used")
        self._alerts = counter("baton:budget_alerts", "Budgets of which the told share is spent.", "party")
        held = Gauge("baton:limit_holds", "Reservations that wait to be settled.", registry=registry)
        held.set_function(num_held)

    def refused(self, party: str, kind: str) -> None:
        self._refused.labels(kind_of(party), kind).inc()

    def reserved(self, num_tokens: int) -> None:
        self._reserved.inc(num_tokens)

    def used(self, num_tokens: int) -> None:
        self._used.inc(num_tokens)

    def alert(self, party: str, view: View) -> None:
        """Said aloud: once a period somebody should hear it."""
        self._alerts.labels(kind_of(party)).inc()
        log.warning("budget of %s: %s%% is spent", party, view.spent_percent)


def kind_of(party: str) -> str:
    return party.partition(".")[0]
