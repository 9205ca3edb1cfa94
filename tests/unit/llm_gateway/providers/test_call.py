"""One attempt at another server, without a bus: strange servers, and clients that leave late."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from aiohttp import web

from baton_common.frame_sender import FrameStream
from baton_common.routes import Target
from baton_contracts.frames import Data, End, Prologue
from baton_contracts.prompt import ChatRequest, Message, Part, Prompt
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.providers.call import ProviderCall
from baton_llm_gateway.providers.connections import Connections, addresses
from baton_llm_gateway.providers.piece import MOST_CHARACTERS
from tests.support.fake_provider import Turn, fake_provider

RID = "0123456789abcdef0123456789abcdef"
MESSAGES = (Message(role="user", parts=(Part(text="Hello?"),)),)
KEY = "sk-secret-of-the-operator"


class Sent:
    """A stream's face: keeps the frames."""

    def __init__(self) -> None:
        self.frames: list[Prologue | Data | End] = []
        self.on_end: Callable[[], None] | None = None

    async def send(self, frame: Any) -> Any:
        await self.send_all([frame])
        return frame

    async def send_all(self, frames: Sequence[Any]) -> None:
        self.frames += frames
        if isinstance(frames[-1], End) and self.on_end:
            self.on_end()

    @property
    def ends(self) -> list[str]:
        return [frame.finish_reason for frame in self.frames if isinstance(frame, End)]


class Calling:
    def __init__(self, connections: Connections, target: Target) -> None:
        self.sent = Sent()
        self.attempt = Attempt(1, "far", 0.0)
        self.is_given_up = False
        self.call = ProviderCall(
            connections,
            target,
            ChatRequest(model="far", messages=MESSAGES, stream=True),
            Prompt(messages=MESSAGES),
            self.attempt,
            cast(FrameStream, self.sent),
            Prologue(request_id=RID, sender="g", seq=0, model="far", replica="t", gateway="g", guard="o"),
            lambda: self.is_given_up,
        )

    def leave(self) -> None:
        self.is_given_up = True
        self.call.wake()


@asynccontextmanager
async def calling(base_url: str) -> AsyncGenerator[Calling]:
    target = Target("t", base_url, "up", api_key_env="KEY", first_token_seconds=5, stall_seconds=5)
    connections = Connections(addresses([target], {"KEY": KEY}))
    await connections.start()
    try:
        yield Calling(connections, target)
    finally:
        await connections.stop()


async def hello(turn: Turn) -> None:
    await turn.delta(content="Hello.")
    await turn.done(prompt=7, completion=2)
    await turn.asked.closed.wait()  # the body's end does not come


async def test_a_client_that_leaves_after_the_last_frame_changes_nothing() -> None:
    async with fake_provider(hello) as provider, calling(provider.base_url) as one:
        one.sent.on_end = one.leave
        await one.call.run()
    assert one.sent.ends == ["stop"]
    assert (one.attempt.outcome, one.attempt.finish_reason) == ("finished", "stop")
    assert one.call.failure is None


async def test_no_silence_breaks_off_an_answer_whose_end_is_on_its_way() -> None:
    async with fake_provider(hello) as provider, calling(provider.base_url) as one:
        deadlines: list[float | None] = []
        one.sent.on_end = lambda: deadlines.append(one.call._scope.when())
        await one.call.run()
    assert deadlines == [None]


async def test_what_is_no_http_is_no_answer_and_the_key_stays_out_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(garbage, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, calling(f"http://127.0.0.1:{port}/v1") as one:
        await one.call.run()
    assert one.attempt.error
    assert one.attempt.error.code == "upstream_error"
    assert "t: " in caplog.text
    assert KEY not in caplog.text


ODD: list[dict[str, Any]] = [
    {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"token": "x", "bytes": ["y"]}]}},
    {"index": 0, "delta": {"content": "x"}, "logprobs": {"content": [{"token": "x", "bytes": [-1, 999]}]}},
    {"index": 0, "delta": {"tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}]}},
]


@pytest.mark.parametrize("choice", ODD)
async def test_values_that_no_answer_has_are_the_servers_failure(choice: dict[str, Any]) -> None:
    async def odd(turn: Turn) -> None:
        await turn.event({"choices": [choice]})

    async with fake_provider(odd) as provider, calling(provider.base_url) as one:
        await one.call.run()
    assert one.attempt.error
    assert one.attempt.error.code == "upstream_error"
    assert "can't be understood" in one.attempt.error.message
    assert one.call.failure
    assert one.call.failure.counts


async def test_an_error_that_comes_in_pieces_is_read_to_its_end() -> None:
    said = json.dumps({"error": {"message": "too long", "code": "context_length_exceeded"}}).encode()
    half = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = f"HTTP/1.1 400 Bad Request\r\ncontent-length: {len(said)}\r\n\r\n".encode()
        writer.write(head + said[:9])
        await writer.drain()
        await half.wait()
        writer.write(said[9:])
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, calling(f"http://127.0.0.1:{port}/v1") as one:
        running = asyncio.create_task(one.call.run())
        await asyncio.wait({running}, timeout=0.05)
        half.set()
        await running
    assert one.attempt.error
    assert (one.attempt.error.code, one.attempt.error.message) == ("context_length_exceeded", "too long")


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    async with fake_provider(hello) as other:

        async def elsewhere(turn: Turn) -> None:
            await turn.refuse(307, location=f"{other.base_url}/chat/completions")

        async with fake_provider(elsewhere) as provider, calling(provider.base_url) as one:
            await one.call.run()
        assert other.asked == []
    assert one.attempt.error
    assert (one.attempt.error.code, one.attempt.error.message) == (
        "upstream_error",
        "t answered HTTP 307: no",
    )
    assert one.call.failure
    assert one.call.failure.counts


@pytest.mark.parametrize(
    ("content_type", "body", "words"),
    [
        ("text/html", b"<html>Sign in</html>", "it is no JSON"),
        ("application/json", b"", "it is no JSON"),
        ("application/json", b"[" * 5000, "it is no JSON"),
        ("application/json", b'{"choices": 7}', "the answer has no choices"),
        ("text/event-stream", b"data: <html>\n\n", "it is no JSON"),
        ("text/event-stream", b": only comments\n\n", "closed the connection in the middle"),
    ],
)
async def test_whatever_else_comes_with_200_is_the_servers_failure(
    content_type: str, body: bytes, words: str
) -> None:
    async def strange(turn: Turn) -> None:
        turn.response = web.Response(body=body, content_type=content_type)

    async with fake_provider(strange) as provider, calling(provider.base_url) as one:
        await one.call.run()
    assert one.attempt.error
    assert words in one.attempt.error.message
    assert one.sent.frames == []


async def test_a_body_that_was_compressed_unasked_is_read_all_the_same() -> None:
    async def squeezed(turn: Turn) -> None:
        await turn.whole("Forty-two. " * 100)
        assert isinstance(turn.response, web.Response)
        turn.response.enable_compression(web.ContentCoding.gzip)

    async with fake_provider(squeezed) as provider, calling(provider.base_url) as one:
        await one.call.run()
    assert provider.asked[0].headers["accept-encoding"] == "identity"
    assert (one.attempt.text, one.sent.ends) == ("Forty-two. " * 100, ["stop"])


async def test_a_whole_answer_goes_out_in_frames_that_fit_the_bus() -> None:
    text = "0123456789abcdef" * 40_000

    async def long(turn: Turn) -> None:
        await turn.whole(text)

    async with fake_provider(long) as provider, calling(provider.base_url) as one:
        await one.call.run()
    told = [frame.text for frame in one.sent.frames if isinstance(frame, Data)]
    assert "".join(told) == text
    assert max(map(len, told)) <= MOST_CHARACTERS
