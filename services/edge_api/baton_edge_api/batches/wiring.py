"""Puts files and batches together on an edge. Owns which tasks run beside the requests."""

from __future__ import annotations

from starlette.types import ASGIApp

from baton_common.catalog import Catalog
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts.subjects import BUCKET_BATCHES
from baton_edge_api.batches.batch_endpoints import BatchEndpoints
from baton_edge_api.batches.file_endpoints import FileEndpoints
from baton_edge_api.batches.lead import Lead
from baton_edge_api.batches.line_runner import LineRunner
from baton_edge_api.batches.records import BatchRecord
from baton_edge_api.batches.room import Room
from baton_edge_api.batches.run import BatchRun, RunLimits
from baton_edge_api.batches.runner import BatchRunner
from baton_edge_api.batches.store import OfflineStore
from baton_edge_api.batches.sweep import sweep_now_and_then
from baton_edge_api.bucket_watch import watch_bucket
from baton_edge_api.embedders import EmbedderBoard
from baton_edge_api.keys import KeyRing
from baton_edge_api.metrics import Metrics
from baton_edge_api.replicas import ReplicaBoard
from baton_edge_api.settings import EdgeSettings


class Offline:
    """`run` it once there is an app to send lines to."""

    def __init__(
        self, node: Node, bus: NatsBus, ring: KeyRing, metrics: Metrics, settings: EdgeSettings
    ) -> None:
        self._node = node
        self._bus = bus
        self._metrics = metrics
        self._settings = settings
        self.store = OfflineStore(bus, settings.max_store_bytes)
        self.files = FileEndpoints(self.store, ring, settings)
        self.batches = BatchEndpoints(self.store, ring, settings)

    def run(self, app: ASGIApp, replicas: ReplicaBoard, embedders: EmbedderBoard, catalog: Catalog) -> None:
        node, bus, store, settings = self._node, self._bus, self.store, self._settings
        room = Room(
            replicas.ready,
            lambda: embedders.num_questions,
            catalog.may_stand_for,
            node.clock.monotonic,
            settings.batch_lines_at_once,
        )
        lines = LineRunner(app, room)
        limits = RunLimits(
            settings.max_batch_lines,
            settings.batch_lines_at_once,
            settings.max_body_bytes,
            settings.max_handoff_bytes,
        )

        def make_run(record: BatchRecord) -> BatchRun:
            return BatchRun(store, lines, limits, record, self._metrics.batch_line)

        runner = BatchRunner(Lead(node, store), make_run)
        node.add(runner)
        node.supervise("batches", runner.run)
        node.supervise("batch room", room.watch)
        node.supervise("batch watch", lambda: watch_bucket(bus, BUCKET_BATCHES, "batch.>", runner.mirror))
        node.supervise("file sweep", lambda: sweep_now_and_then(store))
