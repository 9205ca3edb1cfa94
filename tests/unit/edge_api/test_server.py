"""The end of the HTTP server: who stands at the door is answered, and nobody is cut off who might speak."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from baton_edge_api import server
from baton_edge_api.http_protocol import MAX_UNSENT_BYTES
from baton_edge_api.server import listen, serving
from baton_edge_api.settings import EdgeSettings
from tests.support.waiting import eventually

REQUEST = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"hi"})


class Leaving:
    """Whether the process is about to go, and where it listens."""

    def __init__(self) -> None:
        self.is_so = False
        self.socket = listen(EdgeSettings.model_validate({"port": 0}))
        self.address = self.socket.getsockname()[:2]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator[None, None]:
        settings = EdgeSettings.model_validate({"port": 0})
        async with serving(app, settings, self.socket, lambda: self.is_so):
            yield


async def answer_of(reader: asyncio.StreamReader) -> tuple[str, bool]:
    """Status line, and whether it is said to be the last answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    assert await reader.readexactly(2) == b"hi"
    return head.split("\r\n")[0], "connection: close" in head


async def test_once_it_is_leaving_each_answer_says_that_it_is_the_last() -> None:
    leaving = Leaving()
    async with leaving.serving():
        reader, writer = await asyncio.open_connection(*leaving.address)
        writer.write(REQUEST)
        assert await answer_of(reader) == ("http/1.1 200 ok", False)
        leaving.is_so = True
        writer.write(REQUEST)
        assert await answer_of(reader) == ("http/1.1 200 ok", True)
        assert await reader.read() == b""
        writer.close()


async def test_who_stands_at_the_door_when_it_closes_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have connected and asked, and the server's loop has not had a turn since."""
    leaving = Leaving()
    at_the_door: list[socket.socket] = []
    ordinary_tick = uvicorn.Server.on_tick

    async def tick(self: uvicorn.Server, counter: int) -> bool:
        should_exit = await ordinary_tick(self, counter)
        if should_exit:
            at_the_door.extend(socket.create_connection(leaving.address) for _ in range(20))
            for client in at_the_door:
                client.sendall(REQUEST)
        return should_exit

    monkeypatch.setattr(uvicorn.Server, "on_tick", tick)
    async with leaving.serving():
        reader, writer = await asyncio.open_connection(*leaving.address)
        writer.write(REQUEST)
        await answer_of(reader)
        leaving.is_so = True
    writer.close()
    answers = [client.recv(1000) for client in at_the_door]
    for client in at_the_door:
        client.close()
    assert len(answers) == 20
    assert all(answer.startswith(b"HTTP/1.1 200") and answer.endswith(b"hi") for answer in answers)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(leaving.address)


async def test_a_client_that_speaks_after_the_door_is_closed_is_answered() -> None:
    """Its connection was open and silent, as one that a pool keeps."""
    leaving = Leaving()
    async with leaving.serving():
        reader, writer = await asyncio.open_connection(*leaving.address)
        writer.write(REQUEST)
        await answer_of(reader)
        leaving.is_so = True
        speaking = asyncio.create_task(_speak_when_closed(leaving.address, writer))
    await speaking
    assert await answer_of(reader) == ("http/1.1 200 ok", True)
    writer.close()


async def _speak_when_closed(
    address: tuple[str, int], *writers: asyncio.StreamWriter, words: bytes = REQUEST
) -> None:
    while True:
        try:
            _, other = await asyncio.open_connection(*address)
            other.close()
            await other.wait_closed()
        except ConnectionError:  # refused, or reset if it closed in the middle of the handshake
            for writer in writers:
                writer.write(words)
            return


async def test_a_client_that_stays_silent_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SILENT_SECONDS", 0.1)
    leaving = Leaving()
    async with leaving.serving():
        reader, writer = await asyncio.open_connection(*leaving.address)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 5, "uvicorn's own patience for what is under way"
    assert await reader.read() == b""
    writer.close()


async def test_a_client_in_the_middle_of_a_head_may_end_it() -> None:
    leaving = Leaving()
    async with leaving.serving():
        reader, writer = await asyncio.open_connection(*leaving.address)
        writer.write(REQUEST)
        await answer_of(reader)
        writer.write(REQUEST[:10])
        fresh_reader, fresh_writer = await asyncio.open_connection(*leaving.address)
        fresh_writer.write(REQUEST[:10])
        leaving.is_so = True
        speaking = asyncio.create_task(
            _speak_when_closed(leaving.address, writer, fresh_writer, words=REQUEST[10:])
        )
    await speaking
    for each in (reader, fresh_reader):
        assert await answer_of(each) == ("http/1.1 200 ok", True)
    writer.close()
    fresh_writer.close()


async def test_a_head_that_is_never_ended_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_SILENT_SECONDS", 0.1)
    leaving = Leaving()
    async with leaving.serving():
        reader, writer = await asyncio.open_connection(*leaving.address)
        writer.write(REQUEST[:10])
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 5
    assert await reader.read() == b""
    writer.close()


# A client that takes nothing


class Flood:
    """An answer without end. `taken`: pieces of it for which it did not have to wait."""

    PIECE = bytes(64 * 1024)

    def __init__(self, num_pieces: int) -> None:
        self._num_pieces = num_pieces
        self.taken = 0
        self.client_left = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(self._num_pieces):
            await send({"type": "http.response.body", "body": self.PIECE, "more_body": True})
            self.taken += 1
        while (await receive())["type"] != "http.disconnect":
            pass
        self.client_left.set()


@asynccontextmanager
async def not_reading(flood: Flood, **values: object) -> AsyncGenerator[None, None]:
    """A client that has asked and reads nothing; between the two fits next to nothing."""
    settings = EdgeSettings.model_validate({"port": 0} | values)
    listening = listen(settings)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        async with serving(flood, settings, listening, lambda: False):
            client.connect(listening.getsockname())
            client.sendall(REQUEST)
            yield
            client.close()


async def test_an_answer_that_comes_at_once_waits_for_its_client_in_bounds() -> None:
    flood = Flood(num_pieces=100)
    async with not_reading(flood):
        await eventually(lambda: flood.taken * len(flood.PIECE) >= MAX_UNSENT_BYTES)
        for _ in range(1000):
            await asyncio.sleep(0)
        assert flood.taken * len(flood.PIECE) < MAX_UNSENT_BYTES + 2 * len(flood.PIECE)


async def test_a_client_that_never_takes_what_is_written_is_given_up() -> None:
    flood = Flood(num_pieces=2)
    async with not_reading(flood, write_timeout=0.1), asyncio.timeout(20):
        await flood.client_left.wait()
    assert flood.taken == 2, "nobody waited for it"


def test_a_client_may_be_waited_for_as_good_as_for_ever() -> None:
    listen(EdgeSettings.model_validate({"port": 0, "write_timeout": 1e9})).close()
