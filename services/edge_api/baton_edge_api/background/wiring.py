"""Puts responses in the background together on an edge. Owns which tasks run beside the requests."""

from __future__ import annotations

from starlette.types import ASGIApp

from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts.subjects import BUCKET_BACKGROUND, BUCKET_EVENTS
from baton_edge_api.background.desk import BackgroundDesk
from baton_edge_api.background.run import RunParts
from baton_edge_api.background.runner import BackgroundRunner
from baton_edge_api.background.store import BackgroundStore
from baton_edge_api.background.viewing import Viewers, ViewingParts
from baton_edge_api.bucket import NatsBucket
from baton_edge_api.bucket_watch import watch_bucket
from baton_edge_api.limits.admission import Admission
from baton_edge_api.record_log import RecordLog
from baton_edge_api.responses.books_desk import BooksDesk
from baton_edge_api.settings import EdgeSettings

_EVENTS_SECONDS = 600.0
"""Of a response that took as long as it may, the first events are kept so long after its end."""


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
        events = NatsBucket(
            bus,
            BUCKET_EVENTS,
            keep_seconds=settings.background_seconds + _EVENTS_SECONDS,
            max_bytes=settings.background_events_bytes,
        )
        self.store = BackgroundStore(NatsBucket(bus, BUCKET_BACKGROUND), events)
        parts = RunParts(
            instance=node.instance,
            store=self.store,
            books=books,
            record_log=record_log,
            wall=node.clock.wall,
            max_piece_bytes=settings.max_handoff_bytes,
            seconds=settings.background_seconds,
        )
        self._runner = BackgroundRunner(node, parts, settings.max_background, settings.max_tenant_background)
        self.makes = self._runner.makes
        self._viewers = Viewers(
            ViewingParts(
                store=self.store,
                mirror=self._runner.mirror,
                events=events,
                books=books,
                keep_alive_seconds=settings.keep_alive_seconds,
                write_seconds=settings.write_timeout,
            ),
            settings.max_background,
            settings.max_tenant_background,
        )
        self.desk = BackgroundDesk(
            self.store,
            self._runner,
            admission,
            self._viewers,
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
        self._viewers.stop()
        await self._runner.stop()
