"""An OpenAI-compatible server for tests: a script says what it answers, and it keeps what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Asked:
    body: dict[str, Any]
    headers: dict[str, str]
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the other side closes the connection before the answer is over."""


class Turn:
    """One request, as a script answers it."""

    def __init__(self, asked: Asked, request: web.Request) -> None:
        self.asked = asked
        self._request = request
        self._response: web.StreamResponse | None = None

    async def refuse(self, status: int, error: object = None, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.response = web.json_response({"error": error or {"message": "no"}}, status=status, headers=named)

    response: web.StreamResponse | None = None

    async def whole(self, text: str, **more: Any) -> None:
        message = {"role": "assistant", "content": text} | more.pop("message", {})
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
        self.response = web.json_response({"id": "x", "choices": [choice], "usage": usage} | more)

    async def raw(self, piece: bytes) -> None:
        if self._response is None:
            self.response = self._response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await self._response.prepare(self._request)
        await self._response.write(piece)

    async def event(self, value: object) -> None:
        await self.raw(b"data: " + json.dumps(value).encode() + b"\n\n")

    async def delta(self, index: int = 0, reason: str | None = None, **delta: Any) -> None:
        await self.event({"choices": [{"index": index, "delta": delta, "finish_reason": reason}]})

    async def words(self, count: int) -> None:
        for number in range(count):
            await self.delta(content=f"{number} ")

    async def done(self, prompt: int = 9, completion: int = 4, reason: str = "stop") -> None:
        await self.delta(reason=reason)
        await self.event({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}})
        await self.raw(b"data: [DONE]\n\n")

    async def silence(self) -> None:
        """Until the other side leaves."""
        await self.raw(b": thinking\n\n")
        await self.asked.closed.wait()

    def cut(self) -> None:
        assert self._request.transport
        self._request.transport.abort()


Script = Callable[[Turn], Awaitable[None]]


class FakeProvider:
    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.script: Script | None = None
        self.port = 0

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def handle(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(await request.json(), {k.lower(): v for k, v in request.headers.items()})
        self.asked.append(asked)
        turn = Turn(asked, request)
        assert self.script
        assert request.transport
        protocol = request.protocol
        watch = asyncio.create_task(_until_closed(protocol, asked))
        try:
            await self.script(turn)
        finally:
            watch.cancel()
        return turn.response or web.Response(status=204)


async def _until_closed(protocol: Any, asked: Asked) -> None:
    while protocol.transport is not None and not protocol.transport.is_closing():
        await asyncio.sleep(0.005)  # aiohttp would tell it by cancelling the handler, which has to live on
    asked.closed.set()


@asynccontextmanager
async def fake_provider(script: Script | None = None) -> AsyncGenerator[FakeProvider, None]:
    provider = FakeProvider()
    provider.script = script
    app = web.Application()
    app.router.add_post("/v1/chat/completions", provider.handle)
    runner = web.AppRunner(app, handler_cancellation=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server = site._server
    assert server
    provider.port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield provider
    finally:
        await runner.cleanup()
