"""Puts responses in the background together on an edge. Owns which tasks run beside the requests."""

from __future__ import annotations

from starlette.types import ASGIApp

from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts.subjects import BUCKET_BACKGROUND
from baton_edge_api.background.desk import BackgroundDesk
from baton_edge_api.background.run import RunParts
from baton_edge_api.background.runner import BackgroundRunner
from baton_edge_api.background.store import BackgroundStore
from baton_edge_api.bucket import NatsBucket
from baton_edge_api.bucket_watch import watch_bucket
from baton_edge_api.limits.admission import Admission
from baton_edge_api.record_log import RecordLog
from baton_edge_api.responses.books_desk import BooksDesk
from baton_edge_api.settings import EdgeSettings


class Background:
    """`run` it once there is an app to ask."""

    def __init__(
        self,
        node: Node,
        bus: NatsBus,
        books: BooksDesk,
        record_log: RecordLog,
        admission: Admission,
        settings: EdgeSettings,
    ) -> None:
        self._node = node
        self._bus = bus
        self.store = BackgroundStore(NatsBucket(bus, BUCKET_BACKGROUND))
        parts = RunParts(
            instance=node.instance,
            store=self.store,
            books=books,
            record_log=record_log,
            wall=node.clock.wall,
            seconds=settings.background_seconds,
        )
        self._runner = BackgroundRunner(node, parts, settings.max_background, settings.max_tenant_background)
        self.makes = self._runner.makes
        self.desk = BackgroundDesk(
            self.store,
            self._runner,
            admission,
            instance=node.instance,
            max_bytes=settings.max_handoff_bytes,
        )

    def run(self, app: ASGIApp) -> None:
        runner = self._runner
        runner.app = app
        self._node.add(runner)
        self._node.supervise("background", runner.run)
        self._node.supervise(
            "background watch", lambda: watch_bucket(self._bus, BUCKET_BACKGROUND, ">", runner.mirror)
        )

    async def stop(self) -> None:
        await self._runner.stop()
