"""The bus over a real server: order, answers, silence, a callback that raises, a restart."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.aio.transport import TcpTransport
from nats.errors import FlushTimeoutError
from nats.protocol.parser import Parser

from baton_common.bus import BusMessage
from baton_common.errors import BusError, BusTimeout, MessageTooLarge, NoResponders
from baton_common.nats_bus import NatsBus
from baton_common.nats_client import StraightClient
from tests.support.nats_server import running_nats_server
from tests.support.ports import free_port
from tests.support.relay import eventually
from tests.support.restartable_nats import Connections, restartable_nats_server

NUM_MESSAGES = 5_000


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[NatsBus]:
    bus = await NatsBus.connect(url, name="test")
    try:
        yield bus
    finally:
        await bus.close()


async def test_messages_of_one_turn_arrive_in_their_order(tmp_path: Path) -> None:
    heard: list[int] = []
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:
            await bus.subscribe("turn", lambda message: heard.append(int(message.payload)))
            for number in range(NUM_MESSAGES):
                await bus.publish("turn", b"%d" % number)
            await eventually(lambda: len(heard) == NUM_MESSAGES)
    assert heard == list(range(NUM_MESSAGES))


async def test_more_than_the_socket_takes_at_once_arrives(tmp_path: Path) -> None:
    sizes: list[int] = []
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:
            await bus.subscribe("much", lambda message: sizes.append(len(message.payload)))
            for _ in range(64):
                await bus.publish("much", bytes(500_000))
            await eventually(lambda: len(sizes) == 64)
    assert set(sizes) == {500_000}


async def test_an_answer_nobody_and_silence(tmp_path: Path) -> None:
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:

            def answer(message: BusMessage) -> None:
                tasks.add(asyncio.create_task(bus.publish(message.reply, message.payload + b"!")))

            tasks: set[asyncio.Task[None]] = set()
            await bus.subscribe("echo", answer)
            await bus.subscribe("silent", lambda _: None)
            words = [b"%d" % number for number in range(50)]
            answers = await asyncio.gather(*(bus.request("echo", word, timeout=5) for word in words))
            assert answers == [word + b"!" for word in words]
            with pytest.raises(NoResponders):
                await bus.request("nobody", b"", timeout=30)
            with pytest.raises(BusTimeout):
                await bus.request("silent", b"", timeout=0.05)


async def test_a_callback_that_raises_costs_its_message_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[bytes] = []

    def hear(message: BusMessage) -> None:
        if message.payload == b"bad":
            raise ValueError("what was in it")
        heard.append(message.payload)

    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:
            subscription = await bus.subscribe("sub", hear)
            for word in (b"one", b"bad", b"two"):
                await bus.publish("sub", word)
            await eventually(lambda: heard == [b"one", b"two"])
            await subscription.unsubscribe()
            with pytest.raises(NoResponders):
                await bus.request("sub", b"three", timeout=30)
    assert "callback of sub failed" in caplog.text
    assert heard == [b"one", b"two"]


async def test_after_a_restart_of_the_server_all_is_as_before(tmp_path: Path) -> None:
    heard: list[bytes] = []
    port = free_port()
    with running_nats_server(tmp_path, port=port) as url:
        bus = await NatsBus.connect(url, name="test")
        await bus.subscribe("sub", lambda message: heard.append(message.payload))
        await bus.publish("sub", b"before")
        await eventually(lambda: heard == [b"before"])
        with pytest.raises(NoResponders):
            await bus.request("nobody", b"", timeout=30)  # answers have an inbox, which has to come back too
    await eventually(lambda: not bus.connected)
    with running_nats_server(tmp_path / "again", port=port):
        await eventually(lambda: bus.connected)
        await bus.publish("sub", b"after")
        await eventually(lambda: heard == [b"before", b"after"])
        with pytest.raises(NoResponders):
            await bus.request("nobody", b"", timeout=30)
        await bus.close()


async def test_a_bus_that_is_lost_while_one_subscribes_is_a_bus_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []

    async def no_pong(_: StraightClient) -> None:
        raise FlushTimeoutError

    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:
            with monkeypatch.context() as lost:
                lost.setattr(StraightClient, "flush", no_pong)
                with pytest.raises(BusError, match="sub: "):
                    await bus.subscribe("sub", lambda message: heard.append(message.payload))
            with pytest.raises(NoResponders):  # it is not left behind
                await bus.request("sub", b"late", timeout=30)
            await bus.close()
            with pytest.raises(BusError, match="sub: "):
                await bus.subscribe("sub", lambda message: heard.append(message.payload))
    assert heard == []


async def test_what_is_too_large_to_be_stored_is_told_at_once(tmp_path: Path) -> None:
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus, asyncio.timeout(20):
            await bus.jetstream.add_stream(name="KEPT", subjects=["kept"])
            with pytest.raises(MessageTooLarge, match=r"kept: .*larger than the bus takes"):
                await bus.publish_durable("kept", bytes(2_000_000), message_id="1", timeout=60)


def test_nats_py_still_has_what_the_short_way_leans_on() -> None:
    """Fails with a new version of nats-py: `nats_client.py` has to be read against it first."""
    client = vars(StraightClient())
    names = {"_sid", "_pending", "_pending_data_size", "_flusher_task", "_flush_queue", "_transport"}
    assert names <= client.keys()
    assert list(inspect.signature(Client._process_msg).parameters) == [
        "self",
        "sid",
        "subject",
        "reply",
        "data",
        "headers",
    ]
    assert list(inspect.signature(Client._flush_pending).parameters) == ["self", "force_flush"]
    assert list(inspect.signature(Client._remove_sub).parameters) == ["self", "sid", "max_msgs"]
    publish, process = inspect.getsource(Client.publish), inspect.getsource(Parser.parse)
    assert "self._flush_pending(" in inspect.getsource(Client._send_publish) + publish
    assert "nc._process_msg(" in process
    assert "_io_writer" in inspect.getsource(TcpTransport)
    assert "self._server_info = " in inspect.getsource(Client)


async def test_what_one_turn_publishes_is_one_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:
            client = cast(Any, bus)._client
            writer = client._free_writer()
            writes: list[int] = []
            monkeypatch.setattr(writer, "writelines", lambda lines: writes.append(len(b"".join(lines))))
            for _ in range(10):
                await bus.publish("turn", bytes(100))
            await eventually(lambda: bool(writes))
            assert (len(writes), writes[0] > 1000) == (1, True)


async def test_a_bus_that_was_just_found_again_is_not_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with restartable_nats_server(tmp_path) as server:
        async with connected(server.url) as bus:
            assert bus.is_settled
            connections = Connections(bus)
            server.stop()
            await connections.lost()
            assert not bus.is_settled
            server.start()
            await connections.found()
            assert not bus.is_settled
            monkeypatch.setattr("baton_common.nats_bus.SETTLE_SECONDS", 0.0)
            assert bus.is_settled


async def test_what_is_said_to_a_socket_that_closed_unnoticed_is_sent_behind_the_reconnect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: list[bytes]) -> None:
        raise RuntimeError("unable to perform operation; the handler is closed")  # as uvloop has it

    heard: list[bytes] = []
    with restartable_nats_server(tmp_path) as server:
        async with connected(server.url) as bus:
            await bus.subscribe("late", lambda message: heard.append(message.payload))
            client = cast(Any, bus)._client
            client._flusher_task.cancel()
            await eventually(client._flusher_task.done)
            with monkeypatch.context() as cut_off:
                writer = client._transport._io_writer
                cut_off.setattr(writer, "is_closing", lambda: True)
                cut_off.setattr(writer, "writelines", closed)
                await bus.publish("late", b"said")
            connections = Connections(bus)
            server.stop()
            await connections.lost()
            server.start()
            await connections.found()
            await eventually(lambda: heard == [b"said"])


async def test_what_may_wait_travels_with_what_is_sent_next_and_before_it(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus, connected(url) as other:
            await bus.subscribe("words", lambda message: heard.append(message.payload))
            writes = writes_of(other)
            await other.publish("words", b"note", within=3600.0)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not writes
            await other.publish("words", b"answer")
            await eventually(lambda: len(heard) == 2)
    assert (heard, len(writes)) == ([b"note", b"answer"], 1)


async def test_what_may_wait_goes_by_itself_when_its_time_is_over(tmp_path: Path) -> None:
    heard: list[bytes] = []
    with running_nats_server(tmp_path) as url:
        async with connected(url) as bus:
            await bus.subscribe("words", lambda message: heard.append(message.payload))
            async with connected(url) as other:
                await other.publish("words", b"late", within=3600.0)
                await other.publish("words", b"early", within=0.001)
                await eventually(lambda: len(heard) == 2)
                await other.publish("words", b"last", within=3600.0)
            await eventually(lambda: len(heard) == 3)  # whoever closes leaves nothing behind
    assert heard == [b"late", b"early", b"last"]


def writes_of(bus: NatsBus) -> list[Any]:
    """Each write of messages on "words" to its socket from here on."""
    transport = bus._client._transport
    assert isinstance(transport, TcpTransport)
    writer = cast(asyncio.StreamWriter, transport._io_writer)
    writes: list[Any] = []
    through = writer.writelines

    def writelines(parts: Any) -> None:
        if any(b"words" in part for part in parts):  # and not a ping
            writes.append(parts)
        through(parts)

    writer.writelines = writelines
    return writes
