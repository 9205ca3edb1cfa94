"""Puts the edge together on a node. Owns the order in which its parts start and stop."""

from __future__ import annotations

import logging
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.catalog import catalog_of
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.recent_ends import RecentEnds
from baton_common.service import Wire
from baton_edge_api.actor import Desk
from baton_edge_api.app import build_app
from baton_edge_api.background.wiring import Background
from baton_edge_api.batches.wiring import Offline
from baton_edge_api.completion_reading import completion_reader
from baton_edge_api.cross_origin import for_origins
from baton_edge_api.embedder_call import EmbedderCall
from baton_edge_api.embedders import EmbedderBoard
from baton_edge_api.embeddings import EmbeddingParts, EmbeddingsEndpoint
from baton_edge_api.key_watch import wait_for, watch_keys, watch_limits
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.wiring import Limits
from baton_edge_api.metrics import Metrics
from baton_edge_api.openapi import document_bytes
from baton_edge_api.record_log import RecordLog
from baton_edge_api.relay_answer import RelayParts
from baton_edge_api.relay_endpoint import RelayEndpoint
from baton_edge_api.replicas import ReplicaBoard
from baton_edge_api.responses.books_desk import BooksDesk
from baton_edge_api.responses.chain import Chain
from baton_edge_api.responses.input_tokens import InputTokens
from baton_edge_api.responses.reading import response_reader
from baton_edge_api.responses.stored import StoredResponses
from baton_edge_api.server import serving
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.side_endpoints import SideEndpoints
from baton_edge_api.spelling import Speller
from baton_edge_api.stop_figures import StopCollector
from baton_edge_api.unbooked import Unbooked
from baton_edge_api.validation import chat_reader

_FLUSH_SECONDS = 5.0
_KEYS_SECONDS = 3.0


def wire(settings: EdgeSettings, sock: socket.socket) -> Wire:
    @asynccontextmanager
    async def start(node: Node, bus: NatsBus) -> AsyncGenerator[None, None]:
        logging.getLogger("uvicorn").setLevel(logging.WARNING)
        ring = KeyRing(settings.dev_key.get_secret_value())
        clock = node.clock
        catalog = catalog_of(settings.home)
        replicas = ReplicaBoard(bus, catalog, monotonic=clock.monotonic, wall=clock.wall)
        metrics = Metrics(replicas.fresh)
        metrics.registry.register(StopCollector(lambda: node.leases.living))
        desk = Desk(node, settings.max_in_flight)
        record_log = RecordLog(bus, settings.max_handoff_bytes)
        ends = RecentEnds(bus, node.leases, clock, Unbooked(bus))
        limits = Limits(node, bus, ring, catalog, metrics, settings)
        parts = RelayParts(desk, ring, record_log, ends, limits.admission, metrics, settings)
        chat = RelayEndpoint(parts, chat_reader(settings))
        speller = Speller(bus, catalog, replicas.knows)
        completions = RelayEndpoint(parts, completion_reader(settings), speller.complete)
        books = BooksDesk(desk, settings.query_timeout)
        background = Background(node, bus, books, record_log, limits.admission, settings)
        chain = Chain(books, background.store, settings.max_text_chars)
        responses = RelayEndpoint(parts, response_reader(settings), chain.complete, background.desk.accept)
        stored = StoredResponses(ring, books, background.desk)

        def is_known(name: str) -> bool:
            return replicas.knows(name) or name in catalog.aliases

        counting = InputTokens(
            desk, ring, is_known, limits.admission, chain, response_reader(settings), settings
        )
        embedders = EmbedderBoard(node.leases, settings.embedding_aliases, clock.wall)
        embeddings = EmbeddingsEndpoint(
            EmbeddingParts(
                desk, ring, embedders, EmbedderCall(node), record_log, limits.admission, metrics, settings
            )
        )
        offline = Offline(node, bus, ring, metrics, settings)
        side = SideEndpoints(node, ring, replicas, embedders, metrics, settings, document_bytes())
        await replicas.start()
        node.supervise("keys", lambda: watch_keys(bus, ring))
        node.add(desk)
        node.supervise("limits", lambda: watch_limits(bus, limits.rules))
        await wait_for("API keys", ring.first_sync, _KEYS_SECONDS)
        await wait_for("limits", limits.rules.first_sync, _KEYS_SECONDS)
        node.supervise("limits of lost edges", limits.left_behind.run)
        node.supervise("limits recounted", limits.recounts.run)

        def is_in_flight(request_id: str) -> bool:
            return desk.is_in_flight(request_id) or background.makes(request_id)

        app = build_app(
            chat, completions, responses, stored, counting, embeddings, offline, side, metrics, is_in_flight
        )
        offline.run(app, replicas, embedders, catalog)
        background.run(app)
        served = for_origins(app, settings.allowed_origins)
        async with serving(served, settings, sock, lambda: node.state == "draining"):
            yield
            await background.stop()
            desk.end_all()
        ends.close()
        await record_log.flush(_FLUSH_SECONDS)
        await limits.stop(_FLUSH_SECONDS)
        await desk.stop()
        await replicas.stop()

    return start
