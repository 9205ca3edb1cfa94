"""A client of the running system: it sees every event, and leaves when it is told to."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.system.live_system import SMALL, LiveSystem

ERROR_KEYS = {"message", "type", "param", "code"}
PATH = "/v1/chat/completions"


class Leave(Exception):
    """Raised by a callback: the client closes its connection."""


@dataclass
class Heard:
    """What one client got."""

    status: int = 0
    headers: httpx.Headers = field(default_factory=httpx.Headers)
    text: str = ""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    done: bool = False
    """`[DONE]` came, or the whole body of an answer that is no stream."""
    citations: list[str] = field(default_factory=list)
    broke: str = ""
    """Why the connection ended in between; empty if it didn't."""
    left: bool = False
    seconds: float = 0.0
    first_text_at: float | None = None

    @property
    def request_id(self) -> str:
        return self.headers["x-request-id"]

    @property
    def complete(self) -> bool:
        return self.status == 200 and self.done and self.error is None

    @property
    def typed_error(self) -> bool:
        """An error object with all four keys, as HTTP error or as last event."""
        return self.error is not None and set(self.error) == ERROR_KEYS and bool(self.error["code"])


Callback = Callable[[Heard], None]


def _nothing(_: Heard) -> None:
    return None


def question(text: str = "Tell me a long story.", **changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": SMALL,
        "messages": [{"role": "user", "content": text}],
        "retrieval": "off",
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body |= changes
    if not body["stream"]:
        del body["stream_options"]
    return body


def endless(text: str = "Tell me a long story.", **changes: Any) -> dict[str, Any]:
    """It goes on until somebody ends it."""
    return question(text, **({"ignore_eos": True, "max_tokens": 2500} | changes))


def ask(
    system: LiveSystem,
    body: dict[str, Any],
    *,
    on_head: Callback = _nothing,
    on_text: Callback = _nothing,
    seconds: float = 120,
    **headers: str,
) -> Heard:
    """`on_head` is called once the headers are there, `on_text` after each piece of text. `seconds`: longest
    silence."""
    heard = Heard()
    began = time.monotonic()
    try:
        with httpx.stream(
            "POST", system.url + PATH, json=body, headers=system.headers | headers, timeout=seconds,
            trust_env=False,
        ) as response:  # fmt: skip
            heard.status, heard.headers = response.status_code, response.headers
            on_head(heard)
            if response.headers["content-type"].startswith("text/event-stream"):
                _read_events(response, heard, on_text)
            else:
                _read_whole(response, heard)
    except Leave:
        heard.left = True
    except httpx.TransportError as error:
        heard.broke = type(error).__name__
    heard.seconds = time.monotonic() - began
    return heard


def _read_whole(response: httpx.Response, heard: Heard) -> None:
    body = json.loads(response.read())
    heard.error, heard.usage = body.get("error"), body.get("usage")
    if heard.status == 200:
        choice = body["choices"][0]
        heard.text, heard.finish_reason = choice["message"]["content"], choice["finish_reason"]
        heard.citations = choice["message"].get("baton", {}).get("citations", [])
        heard.done = True


def _read_events(response: httpx.Response, heard: Heard, on_text: Callback) -> None:
    for line in response.iter_lines():
        if not line.startswith("data: "):
            continue
        assert not heard.done, f"after [DONE] came {line!r}"
        if line == "data: [DONE]":
            heard.done = True
            continue
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            heard.error = event["error"]
            continue
        heard.usage = event.get("usage") or heard.usage
        heard.citations = (event.get("baton") or {}).get("citations", heard.citations)
        for choice in event["choices"]:
            heard.finish_reason = choice["finish_reason"] or heard.finish_reason
            if piece := choice["delta"].get("content"):
                heard.text += piece
                heard.first_text_at = heard.first_text_at or time.monotonic()
                on_text(heard)


class Background:
    """A request under way in a thread of its own."""

    def __init__(
        self, pool: ThreadPoolExecutor, system: LiveSystem, body: dict[str, Any], **options: Any
    ) -> None:
        self._began = threading.Event()
        self._text = threading.Event()
        self._leave = threading.Event()
        self.heard: Heard | None = None
        self._future: Future[Heard] = pool.submit(
            ask, system, body, on_head=self._on_head, on_text=self._on_text, **options
        )  # fmt: skip

    def _on_head(self, heard: Heard) -> None:
        self.heard = heard
        self._began.set()

    def _on_text(self, _: Heard) -> None:
        self._text.set()
        if self._leave.is_set():
            raise Leave

    def has_begun(self, seconds: float = 60) -> Heard:
        """The headers are there."""
        assert self._began.wait(seconds), "no headers"
        assert self.heard
        return self.heard

    def has_text(self, seconds: float = 60) -> Heard:
        assert self._text.wait(seconds), f"no text: {self.heard}"
        return self.has_begun()

    def leave(self) -> Heard:
        """With the next piece of text."""
        self._leave.set()
        return self.result()

    def result(self, seconds: float = 120) -> Heard:
        return self._future.result(seconds)


@contextmanager
def background(system: LiveSystem, body: dict[str, Any], **options: Any) -> Iterator[Background]:
    """The request has its own thread; the body of the `with` must end it."""
    with ThreadPoolExecutor(1) as pool:
        yield Background(pool, system, body, **options)


def long_prompt(num_words: int = 1200) -> str:
    """So much that reading it takes the engine several steps; no two are alike, so no cache helps."""
    salt = time.monotonic_ns()
    return " ".join(f"word{(salt + number) % 9973}" for number in range(num_words))
