"""R16, the edge's part: NATS goes away in the middle of a stream and comes back. The gap is had again from
its sender: nothing is lost, nothing comes twice, and the client only sees a pause."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import httpx

from baton_contracts.records import ConversationRecord
from tests.support.edge_process import QUESTION, Turn, running_edge
from tests.support.restartable_nats import Connections, restartable_nats_server


async def test_what_was_sent_in_between_comes_after_all(tmp_path: Path) -> None:
    away = asyncio.Event()
    back = asyncio.Event()

    async def across_the_gap(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("before ")
        await away.wait()
        await turn.data("between ")
        await back.wait()
        await turn.data("after")
        await turn.end()

    with restartable_nats_server(tmp_path) as server:
        async with (
            running_edge(server.url, across_the_gap) as edge,
            httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as client,
        ):
            body = QUESTION | {"stream": True}
            texts: list[str] = []
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                lines = response.aiter_lines()
                while "before" not in (line := await anext(lines)):
                    pass
                texts.append(line)
                connections = Connections(edge.bus, edge.relay.bus)
                server.stop()
                await connections.lost()
                away.set()
                server.start()
                await connections.found()
                back.set()
                texts += [line async for line in lines if line]
            record = ConversationRecord.decode(await edge.relay.record("conversation"))
    assert texts[-1] == "data: [DONE]"
    chunks = [json.loads(line.removeprefix("data: ")) for line in texts[:-1]]
    contents = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
    assert contents == ["before ", "between ", "after", None]
    assert record.answer == "before between after"
