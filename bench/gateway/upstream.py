"""The upstream: an OpenAI-compatible server that answers at once, so that the gateway is what is measured.

`python -m bench.gateway.upstream PORT`. A streamed answer has 34 chunks: a role, 32 words, a finish reason;
then usage and `[DONE]`, all in one write. A model called `paced-MS` sends a chunk every MS milliseconds. No
framework: with one the upstream would be what is measured.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from typing import Any, cast

import uvloop

NUM_WORDS = 32
NUM_CHUNKS = NUM_WORDS + 2
USAGE = {"prompt_tokens": 16, "completion_tokens": NUM_WORDS, "total_tokens": 16 + NUM_WORDS}
WORDS = [f"word{number} " for number in range(NUM_WORDS)]

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_STREAM = re.compile(rb'"stream": ?true')
_PACED = re.compile(rb'"paced-(\d+)"')


def _object(kind: str, **more: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-up", "object": kind, "created": 1_700_000_000, "model": "up"} | more


def _chunk(delta: dict[str, Any], reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
    return b"data: " + json.dumps(_object("chat.completion.chunk", choices=[choice])).encode() + b"\n\n"


def _events() -> list[bytes]:
    last = _object("chat.completion.chunk", choices=[], usage=USAGE)
    return [
        _chunk({"role": "assistant", "content": ""}),
        *(_chunk({"content": word}) for word in WORDS),
        _chunk({}, "stop"),
        b"data: " + json.dumps(last).encode() + b"\n\ndata: [DONE]\n\n",
    ]


def _framed(piece: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(piece), piece)


def _whole() -> bytes:
    message = {"role": "assistant", "content": "".join(WORDS)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = json.dumps(_object("chat.completion", choices=[choice], usage=USAGE)).encode()
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENTS = _events()
WHOLE = _whole()
STREAM = STREAM_HEAD + b"".join(map(_framed, EVENTS)) + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (request := self._next_request()) is not None and self._transport:
            if not _STREAM.search(request):
                self._transport.write(WHOLE)
            elif paced := _PACED.search(request):
                self._transport.write(STREAM_HEAD)
                self._send_slowly(0, int(paced[1]) / 1000)
            else:
                self._transport.write(STREAM)

    def _next_request(self) -> bytes | None:
        """Head and body of one request, once all of it is here."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(self._received, 0, end)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < size:
            return None
        request, self._received = self._received[:size], self._received[size:]
        return request

    def _send_slowly(self, number: int, seconds: float) -> None:
        if self._transport is None:
            return
        self._transport.write(_framed(EVENTS[number]))
        if number + 1 < len(EVENTS):
            asyncio.get_running_loop().call_later(seconds, self._send_slowly, number + 1, seconds)
        else:
            self._transport.write(b"0\r\n\r\n")


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=2048)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1])))
