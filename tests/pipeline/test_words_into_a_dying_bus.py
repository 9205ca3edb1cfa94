"""A NATS server is killed with what it had not read yet: what was said in that moment is said again.

The server is frozen first, so that what is published surely goes into a socket that nobody reads any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from baton_common.actor import Actor
from baton_common.clock import Clock
from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.tracing import SpanRecorder
from baton_contracts import subjects
from baton_contracts.handoffs import PromptHandoff
from baton_contracts.identifiers import new_request_id
from baton_contracts.spans import SpanBatch
from baton_trace_console.archive import Archive, ensure_archive
from tests.support.edge_process import QUESTION, RunningEdge, Turn, hello, running_edge
from tests.support.restartable_nats import Connections, RestartableNats, restartable_nats_server

PATIENCE_SECONDS = 10.0
"""Of the test's client: far less than the 120 s after which the edge gives up silence."""


async def ask(edge: RunningEdge) -> httpx.Response:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=PATIENCE_SECONDS) as client:
        return await client.post("/v1/chat/completions", json=QUESTION)


async def come_back(server: RestartableNats, *buses: NatsBus) -> None:
    connections = Connections(*buses)
    server.kill()
    await connections.lost()
    server.start()
    await connections.found()


class Stop:
    """A prompt builder that fails when it is told to."""

    def __init__(self, bus: NatsBus) -> None:
        self.bus = bus
        self.node = Node(bus, "prompt_builder")
        self.may_fail = asyncio.Event()
        self.actor = Actor(
            self.node,
            subject=subjects.PROMPT_ALL,
            message=PromptHandoff,
            handle=self._handle,
            stop_number=3,
        )
        self.node.add(self.actor)

    async def _handle(self, context: RequestContext, handoff: PromptHandoff) -> None:
        await self.may_fail.wait()
        raise RequestFailed.because("context_length_exceeded", "The documents are too long.")


@asynccontextmanager
async def a_stop(url: str) -> AsyncIterator[Stop]:
    bus = await NatsBus.connect(url, name="prompt_builder")
    stop = Stop(bus)
    await stop.node.start()
    await stop.node.become_ready()
    try:
        yield stop
    finally:
        await stop.node.stop()
        await bus.close()


async def test_an_error_that_went_down_with_the_server_reaches_its_client(tmp_path: Path) -> None:
    with restartable_nats_server(tmp_path) as server:
        async with running_edge(server.url) as edge, a_stop(server.url) as stop:
            await edge.relay.unsubscribe_prompt()
            asking = asyncio.create_task(ask(edge))
            await edge.watches.begun(stop.node.instance)
            server.freeze()
            stop.may_fail.set()
            await stop.actor.finished()
            await come_back(server, edge.bus, edge.relay.bus, stop.bus)
            response = await asking
    assert response.status_code == 400
    assert response.json()["error"]["message"] == "The documents are too long."


async def test_an_answer_that_went_down_with_the_server_as_a_whole_comes_after_all(tmp_path: Path) -> None:
    may_answer = asyncio.Event()

    async def answer_into_the_void(turn: Turn) -> None:
        await may_answer.wait()
        await hello(turn)
        turn.relay.outbox.ended(turn.stream)

    with restartable_nats_server(tmp_path) as server:
        async with running_edge(server.url, answer_into_the_void) as edge:
            asking = asyncio.create_task(ask(edge))
            await edge.watches.begun(edge.relay.instance)
            server.freeze()
            may_answer.set()
            await edge.relay.idle()
            await come_back(server, edge.bus, edge.relay.bus)
            response = await asking
    assert response.json()["choices"][0]["message"]["content"] == "Hello ☃!"


async def test_spans_of_an_outage_are_in_the_stream_behind_it(tmp_path: Path) -> None:
    """One request ended as the server died, one while it was away: both have their trace."""
    dying, away = (batch_of(new_request_id()) for _ in range(2))
    with restartable_nats_server(tmp_path) as server:
        async with a_stop(server.url) as stop:
            await ensure_archive(stop.bus, max_age_seconds=600, max_bytes=1_000_000)
            server.freeze()
            await stop.node.span_post.send(dying)
            connections = Connections(stop.bus)
            server.kill()
            await connections.lost()
            await stop.node.span_post.send(away)
            server.start()
            await connections.found()
            archive = Archive(stop.bus)
            async with asyncio.timeout(PATIENCE_SECONDS):
                for batch in (dying, away):
                    while batch not in await archive.batches_of(batch.request_id):
                        await asyncio.sleep(0)
            assert stop.node.span_post.num_dropped == 0


def batch_of(request_id: str) -> SpanBatch:
    clock = Clock()
    spans = SpanRecorder("engine_worker", "engine_worker-1", 7, clock)
    spans.close("handle", clock.wall(), status="ok", attributes={"completion_tokens": 5})
    return spans.batch(request_id, "acme")
