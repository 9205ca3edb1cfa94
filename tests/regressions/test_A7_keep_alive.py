"""A7: a long silence before the first token: comments keep the connection, and clients parse on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import httpx2
import openai

from tests.support.edge_process import KEY, QUESTION, Turn, hello, running_edge
from tests.support.edge_scripts import Silence

STREAM = QUESTION | {"stream": True}


async def test_comments_come_in_the_silence_before_the_first_token(nats_url: str) -> None:
    silence = Silence()
    async with (
        running_edge(nats_url, silence, keep_alive_seconds=0.02) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
        client.stream("POST", "/v1/chat/completions", json=STREAM) as response,
    ):
        pings = 0
        rest: list[str] = []
        async for line in response.aiter_lines():
            pings += line == ": ping"
            if pings == 3:
                silence.heard.set()
            if line.startswith("data: "):
                rest.append(line)
    assert pings >= 3
    assert '"content":"At last."' in rest[1]
    assert rest[-1] == "data: [DONE]"


class Tap(httpx2.AsyncHTTPTransport):
    """openai-python's own transport; sets `heard` once three comments have come over the wire."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await super().handle_async_request(request)
        response.stream = TappedStream(response.stream, self.heard)
        return response


class TappedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, heard: asyncio.Event) -> None:
        self._inner = inner
        self._heard = heard
        self._pings = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._inner:
            self._pings += piece.count(b": ping\n\n")
            if self._pings >= 3:
                self._heard.set()
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()


async def test_openai_python_parses_on_over_comments(nats_url: str) -> None:
    tap = Tap()

    async def silent(turn: Turn) -> None:
        await turn.prologue()
        await tap.heard.wait()
        await turn.data("At last.")
        await turn.end()

    async with (
        running_edge(nats_url, silent, keep_alive_seconds=0.02) as edge,
        openai.AsyncOpenAI(
            base_url=f"{edge.url}/v1",
            api_key=KEY,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(transport=tap),
        ) as client,
    ):
        stream = await client.chat.completions.create(**STREAM)
        texts = [chunk.choices[0].delta.content async for chunk in stream]
    assert tap.heard.is_set()
    assert texts == ["", "At last.", None]


async def test_no_comment_where_there_is_no_silence(nats_url: str) -> None:
    async with (
        running_edge(nats_url, hello) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=STREAM)
    assert ": ping" not in response.text
