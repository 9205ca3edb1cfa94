"""Puts the limits together on a node. Owns the order in which they start and stop."""

from __future__ import annotations

import logging

from baton_common.catalog import Catalog
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts.subjects import BUCKET_LIMITS
from baton_edge_api.bucket import NatsBucket
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.admission import Admission
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.gone_edges import GoneEdges
from baton_edge_api.limits.ledger import Ledger
from baton_edge_api.limits.left_behind import LeftBehind
from baton_edge_api.limits.recounts import Recounts
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.run_costs import RunCosts
from baton_edge_api.metrics import Metrics
from baton_edge_api.settings import EdgeSettings

log = logging.getLogger(__name__)


class Limits:
    def __init__(
        self,
        node: Node,
        bus: NatsBus,
        ring: KeyRing,
        catalog: Catalog,
        metrics: Metrics,
        settings: EdgeSettings,
    ) -> None:
        self.rules = RuleBook(ring.rule_of)
        self._gone = GoneEdges(node.leases)
        bucket = NatsBucket(bus, BUCKET_LIMITS)
        self._accounts = accounts = Accounts(
            self.rules, bucket, self._gone, edge=node.instance, wall=node.clock.wall
        )
        figures = LimitFigures(metrics.registry, lambda: accounts.num_held)
        ledger = Ledger(bus, settings.query_timeout)
        self.left_behind = LeftBehind(
            accounts,
            self._gone,
            bucket,
            ledger,
            RunCosts(rule=self.rules.rule, stands_for=catalog.may_stand_for, wall=node.clock.wall),
            figures,
            living=lambda: node.leases.ready_instances("edge_api"),
            edge=node.instance,
        )
        self.recounts = Recounts(
            accounts,
            ledger,
            self.rules,
            ring,
            figures,
            stands_for=catalog.may_stand_for,
            wall=node.clock.wall,
        )
        self.admission = Admission(
            self.rules,
            accounts,
            catalog,
            figures,
            ring.models_of,
            answer_bound=settings.default_max_tokens,
        )

    async def settled(self, seconds: float) -> bool:
        """True once all that was given back is written; False: not within `seconds`."""
        return await self._accounts.flush(seconds)

    async def stop(self, seconds: float) -> None:
        """What was given back is written before the process ends; what is not, comes back with our lease."""
        if not await self.settled(seconds):
            log.warning("not all limits were settled")
        self._gone.stop()
