"""What a connection may bring that is neither a head nor a body that anybody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from baton_edge_api import server
from baton_edge_api.server import listen, serving
from baton_edge_api.settings import EdgeSettings

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"


async def answers_at_once(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


@asynccontextmanager
async def connection(
    app: ASGIApp, header_timeout: float = 10
) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter], None]:
    settings = EdgeSettings.model_validate({"port": 0, "header_timeout": header_timeout})
    listening = listen(settings)
    async with serving(app, settings, listening, lambda: False), asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
        try:
            yield reader, writer
        finally:
            writer.close()


async def answered(reader: asyncio.StreamReader) -> None:
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert await reader.readexactly(2) == b"hi"


async def cut_off(reader: asyncio.StreamReader) -> bytes:
    """What it was told before."""
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_the_rest_of_a_request_that_has_its_answer_is_not_waited_for_long() -> None:
    async with connection(answers_at_once, header_timeout=0.1) as (reader, writer):
        writer.write(POST)
        await answered(reader)
        writer.write(b"and then no more")
        assert await cut_off(reader) == b""


async def test_nor_is_much_of_it_taken() -> None:
    async with connection(answers_at_once) as (reader, writer):
        writer.write(POST)
        await answered(reader)
        writer.write(bytes(200_000))
        assert await cut_off(reader) == b""


async def test_behind_it_the_connection_is_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE_SECONDS", 0.1)
    async with connection(answers_at_once) as (reader, writer):
        writer.write(POST.replace(b"1000000", b"5"))
        await answered(reader)
        writer.write(b"12345" + GET)
        await answered(reader)
        writer.write(b"\r\n")
        assert await cut_off(reader) == b"", "it was silent"


async def test_trailers_are_bounded_as_headers_are_and_none_of_them() -> None:
    async def takes_all(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] == "http.request" and message["more_body"]:
            pass
        names = {name for name, _ in scope["headers"]}
        assert names == {b"host", b"transfer-encoding"}
        await answers_at_once(scope, receive, send)

    async with connection(takes_all) as (reader, writer):
        writer.write(CHUNKED + b"2\r\n{}\r\n0\r\nauthorization: mine\r\n\r\n")
        await answered(reader)
        writer.write(CHUNKED + b"2\r\n{}\r\n0\r\n")
        for _ in range(100):
            writer.write(b"a: %s\r\n" % (b"x" * 10_000))
        told = await cut_off(reader)
        assert not told or b"Headers larger than 65536 bytes." in told


class Telling:
    """An answer that is never complete."""

    def __init__(self) -> None:
        self.client_left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"Hel", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        self.client_left.set()


async def test_nonsense_behind_a_request_is_not_told_in_its_answer() -> None:
    telling = Telling()
    async with connection(telling) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"Hel")
        writer.write(CHUNKED + b"ZZZ\r\n")
        assert b"400" not in await cut_off(reader)
        await telling.client_left.wait()


async def test_a_client_that_leaves_is_noticed_also_when_it_has_asked_for_more() -> None:
    telling = Telling()
    async with connection(telling) as (reader, writer):
        writer.write(GET)
        await reader.readuntil(b"Hel")
        writer.write(GET + GET)
        writer.close()
        await telling.client_left.wait()


@pytest.mark.parametrize("cut", [0, 40, -9, -4])
@pytest.mark.parametrize(
    "body", [b"content-length: 4\r\n\r\nbody", b"transfer-encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"]
)
async def test_who_offers_another_protocol_is_answered_in_this_one_and_its_body_is_read(
    body: bytes, cut: int
) -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        taken, more = b"", True
        while more:
            message = await receive()
            taken, more = taken + message["body"], message["more_body"]
        told = b"%s %s %s" % (scope["method"].encode(), scope["raw_path"], taken)
        length = [(b"content-length", str(len(told)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": length})
        await send({"type": "http.response.body", "body": told})

    offer = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n"
    request = b"POST /a?b HTTP/1.1\r\nhost: x\r\n" + offer + body
    async with connection(echo) as (reader, writer):
        writer.write(GET + request[:cut])
        assert (await reader.readuntil(b" / ")).startswith(b"HTTP/1.1 200")
        writer.write(request[cut:] + request + GET)
        for told in (b"POST /a body", b"POST /a body", b"GET / "):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(len(told)) == told


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("method", [b"GET", b"CONNECT"])
async def test_nor_is_an_offer_waited_for_by_the_last_request_of_a_connection(
    method: bytes, version: bytes
) -> None:
    offer = b"connection: upgrade, close\r\nupgrade: h2c\r\n\r\n"
    async with connection(answers_at_once) as (reader, writer):
        writer.write(b"%s / HTTP/%s\r\n" % (method, version) + offer)
        await answered(reader)
        assert await cut_off(reader) == b""


async def test_many_offers_at_once_are_no_deeper_than_one() -> None:
    offers = 2000
    async with connection(answers_at_once) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" * offers)
        for _ in range(offers):
            await answered(reader)
