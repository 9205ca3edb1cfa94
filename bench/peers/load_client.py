"""The one load client: streamed completions over raw sockets, with the moment of each token.

Knows HTTP/1.1 and server-sent events as far as the servers here speak them (each writes whole events) and
nothing of which server it is. Raw, because client and server share the cores: an HTTP library costs more for
each event than some servers do.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

ANSWER_SECONDS = 300.0
LINE_BYTES = 1 << 20


Body = dict[str, Any]


def completions(prompt: Sequence[int]) -> Body:
    """The prompt's field for POST /v1/completions: token ids as they are."""
    return {"prompt": list(prompt)}


@dataclass(frozen=True)
class Target:
    """Where a server takes questions, and how it wants the prompt."""

    port: int
    path: str = "/v1/completions"
    key: str = "none"
    asked: Callable[[Sequence[int]], Body] = field(default=completions)


class LoadFailed(Exception):
    """A server refused, broke off, or gave another number of tokens than was asked for."""


@dataclass(frozen=True)
class Answer:
    """Times are time.perf_counter() seconds; `arrivals` has one for each event with tokens in it."""

    sent: float
    arrivals: tuple[float, ...]
    num_tokens: int

    @property
    def ttft(self) -> float:
        return self.arrivals[0] - self.sent

    @property
    def tpot(self) -> float:
        """Seconds for each token after the first."""
        return (self.arrivals[-1] - self.arrivals[0]) / max(1, self.num_tokens - 1)


async def complete(
    target: Target, prompt: Sequence[int], max_tokens: int, on_token: Callable[[], None] | None = None
) -> Answer:
    """One greedy completion that never ends early. Raises LoadFailed."""
    body = {
        "model": "peer",
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
        **target.asked(prompt),
    }
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = await _exchange(target, json.dumps(body).encode(), on_token)
    except (OSError, TimeoutError, ValueError) as error:  # ValueError: no JSON, or a line without an end
        raise LoadFailed(f"the server on port {target.port} broke off: {error!r}") from error
    if answer.num_tokens != max_tokens:
        raise LoadFailed(f"{answer.num_tokens} tokens came, {max_tokens} were asked for")
    return answer


async def _exchange(target: Target, body: bytes, on_token: Callable[[], None] | None) -> Answer:
    sent = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", target.port, limit=LINE_BYTES)
    try:
        head = (
            f"POST {target.path} HTTP/1.1\r\nHost: 127.0.0.1:{target.port}\r\nConnection: close\r\n"
            f"Authorization: Bearer {target.key}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode() + body)
        status = await reader.readline()
        if b" 200" not in status:
            raise LoadFailed(f"{status.decode().strip()}: {(await reader.read(2000)).decode()}")
        events: list[tuple[float, bytes]] = []
        while line := await reader.readline():
            if line.startswith(b"data: {"):
                events.append((time.perf_counter(), line))
                if on_token is not None:
                    on_token()
            elif line.startswith(b"data: [DONE]"):
                break
    finally:
        writer.close()
    return _read(sent, events)


def _read(sent: float, events: list[tuple[float, bytes]]) -> Answer:
    """Parsed after the last event, not while tokens come."""
    arrivals: list[float] = []
    num_tokens = 0
    for moment, line in events:
        event: dict[str, Any] = json.loads(line[6:])
        if "error" in event:
            raise LoadFailed(f"the server answered {event['error']}")
        usage: dict[str, Any] = event.get("usage") or {}
        num_tokens = int(usage.get("completion_tokens", num_tokens))
        choices: list[dict[str, Any]] = event.get("choices") or []
        if choices and choices[0].get("delta", {"content": True}).get(
            "content"
        ):  # a chat's first has a role only
            arrivals.append(moment)
    if not arrivals:
        raise LoadFailed("the answer has no token")
    return Answer(sent, tuple(arrivals), num_tokens)
