"""A21: an `x-request-id` that is none is refused, and goes nowhere: no subject, no log line, no header."""

from __future__ import annotations

import asyncio
import logging

import httpx
import pytest

from baton_contracts.identifiers import parse_request_id
from tests.support.edge_process import KEY, QUESTION, running_edge

HOSTILE = [
    b"a.b.>",
    b"*",
    b"baton.v1.cancel.*",
    b"0" * 32,
    b"x" * 10_000,
    b"0af7651916cd43dd8448eb211c80319c.>",
    b"0af7651916cd43dd8448eb211c80319g",
    b"\xff\xfe",
    b"../../etc/passwd",
    b"{}",
]


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: repr(value[:16]))
async def test_refused_with_an_id_of_our_own(
    nats_url: str, hostile: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        subjects_seen: list[str] = []
        await edge.relay.bus.subscribe("baton.v1.>", lambda message: subjects_seen.append(message.subject))
        caplog.clear()
        response = await client.post(
            "/v1/chat/completions",
            json=QUESTION,
            headers={b"x-request-id": hostile},  # type: ignore[arg-type]
        )
        assert response.status_code == 400
        assert (response.json()["error"]["code"], response.json()["error"]["param"]) == (
            "invalid_request_id",
            "x-request-id",
        )
        ours = response.headers["x-request-id"]
        assert parse_request_id(ours) == ours
        text = hostile.decode("latin-1")
        assert text not in str(response.headers) + response.text
        server_log = [record.getMessage() for record in caplog.records if record.name.startswith("baton")]
        assert not any(text in line for line in server_log)
        await edge.relay.bus.subscribe("sync", lambda _: None)
        assert not any(text in subject for subject in subjects_seen)
        assert edge.relay.turns == []


async def test_a_line_break_in_the_id_ends_the_header_and_nothing_else(nats_url: str) -> None:
    async with running_edge(nats_url) as edge:
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port)
        writer.write(
            b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            b"x-request-id: 0af7651916cd43dd8448eb211c80319c\r\nset-cookie: evil\r\n\r\n"
        )
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"x-request-id: 0af7651916cd43dd8448eb211c80319c\r\n" in answer
    assert b"set-cookie" not in answer


async def test_a_proper_id_comes_back_on_every_answer(nats_url: str) -> None:
    mine = {"x-request-id": "0AF76519-16CD-43DD-8448-EB211C80319C", "authorization": f"Bearer {KEY}"}
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=mine) as client,
    ):
        answers = [
            await client.post("/v1/chat/completions", json=QUESTION),
            await client.post("/v1/chat/completions", content=b"{"),
            await client.get("/nope"),
            await client.get("/v1/models", headers={"authorization": "x"}),
            await client.put("/healthz"),
        ]
        assert [answer.status_code for answer in answers] == [200, 400, 404, 401, 405]
        assert {answer.headers["x-request-id"] for answer in answers} == {"0af7651916cd43dd8448eb211c80319c"}
        assert edge.relay.turns[0].request_id == "0af7651916cd43dd8448eb211c80319c"
