"""The edge's HTTP face, as the command line uses it: streamed chat, traces, documents.

Speaks the OpenAI wire form. Knows nothing of NATS.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

import httpx

from baton_cli.errors import CliError, EdgeRefused, EdgeUnreachable
from baton_cli.home import Home

_CONNECT_SECONDS = 5.0
_SILENCE_SECONDS = 300.0
"""The edge sends keep-alives and has idle time-outs of its own: this only ends a broken connection."""
_TRACES_OF_PAGE = 100


@dataclass(frozen=True)
class EdgeAddress:
    url: str
    key: str


def edge_address(
    environment: Mapping[str, str], url: str | None = None, key: str | None = None
) -> EdgeAddress:
    """Options win over the environment, and that over what `baton up` left in BATON_HOME."""
    found_url = (
        url or environment.get("BATON_URL") or f"http://127.0.0.1:{environment.get('BATON_PORT') or 8080}"
    )
    found_key = key or environment.get("BATON_API_KEY") or environment.get("BATON_DEV_KEY")
    kept = Home.from_environment(environment).dev_key
    if not found_key and kept.is_file():
        found_key = kept.read_text(encoding="ascii").strip()
    if not found_key:
        raise CliError("No API key: start Baton with `make up`, or give one with --key or BATON_API_KEY.")
    _check_address(found_url, found_key)
    return EdgeAddress(found_url.rstrip("/"), found_key)


def _check_address(url: str, key: str) -> None:
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise CliError(f"{url!r} is no URL of an edge (--url, BATON_URL): write it as http://127.0.0.1:8080.")
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise CliError(
            "The API key (--key, BATON_API_KEY) has characters that no key has. Was it cut out whole?"
        )


@dataclass
class Answer:
    """An answer as it comes in. Times are seconds since the request was sent."""

    request_id: str | None = None
    conversation_id: str | None = None
    model: str = ""
    finish_reason: str | None = None
    first_token_seconds: float | None = None
    last_token_seconds: float | None = None
    num_chunks: int = 0
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    text: str = field(default="", repr=False)
    thinks: bool = field(default=False, repr=False)
    """What comes now is what the model thinks before its answer."""

    @property
    def num_tokens(self) -> int:
        """As billed; before the usage chunk came, the chunks seen."""
        return self.completion_tokens if self.completion_tokens is not None else self.num_chunks

    @property
    def seconds_per_token(self) -> float | None:
        """TPOT: the mean gap between tokens after the first."""
        if self.first_token_seconds is None or self.last_token_seconds is None or self.num_tokens < 2:
            return None
        return (self.last_token_seconds - self.first_token_seconds) / (self.num_tokens - 1)


class EdgeClient:
    def __init__(
        self,
        address: EdgeAddress,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = address
        self._clock = clock
        self._client = httpx.Client(
            base_url=address.url,
            headers={"Authorization": f"Bearer {address.key}"},
            timeout=httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS),
            transport=transport,
            trust_env=False,
        )

    def close(self) -> None:
        self._client.close()

    @contextmanager
    def chat(self, body: Mapping[str, Any], answer: Answer) -> Generator[Iterator[str]]:
        """The text of a streamed answer, piece by piece; fills `answer` on the way.

        Leaving the body early closes the connection, which cancels the answer. Raises EdgeRefused, also for
        an error in mid-stream.
        """
        sent = self._clock()
        wanted = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with self._calling(), self._client.stream("POST", "/v1/chat/completions", json=wanted) as response:
            answer.request_id = response.headers.get("x-request-id")
            answer.conversation_id = response.headers.get("x-conversation-id")
            if response.status_code != 200:
                response.read()
                raise _refusal(response)
            try:
                yield self._pieces(response, answer, sent)
            except httpx.TransportError as error:
                raise CliError(
                    f"The connection to {self._address.url} broke in the middle of the answer "
                    f"({error or type(error).__name__}; request {answer.request_id})."
                ) from error

    def trace(self, request_id: str) -> dict[str, Any]:
        with self._calling():
            response = self._client.get(f"/v1/traces/{request_id}")
        return _json(response)

    def usage(self, asked: Mapping[str, str]) -> list[dict[str, Any]]:
        """The ledger in sums."""
        return [row for page in self._pages("/v1/usage", asked) for row in page]

    def traces(self, asked: Mapping[str, str], most: int) -> list[dict[str, Any]]:
        """`request_id` and `summary` of each, newest first, at most so many."""
        found: dict[str, dict[str, Any]] = {}
        for page in self._pages("/v1/traces", {**asked, "limit": str(min(most, _TRACES_OF_PAGE))}):
            for traced in page:
                found.setdefault(str(traced["request_id"]), traced)
            if len(found) >= most:
                break
        return list(found.values())[:most]

    def _pages(self, path: str, asked: Mapping[str, str]) -> Iterator[list[dict[str, Any]]]:
        page: dict[str, str] = {}
        while True:
            with self._calling():
                response = self._client.get(path, params={**asked, **page})
            body = _json(response)
            if not isinstance(body.get("data"), list):
                raise CliError(f"{self._address.url}{path} answered without data. Is that Baton's edge?")
            yield body["data"]
            if not body.get("next_page"):
                return
            page["page"] = body["next_page"]

    def put_document(self, source: str, media_type: str, text: str) -> dict[str, Any]:
        """The edge's count of chunks: `chunks`, `added`, `removed`."""
        body = {"source": source, "media_type": media_type, "text": text}
        with self._calling():
            response = self._client.post("/v1/documents", json=body)
        return _json(response)

    def _pieces(self, response: httpx.Response, answer: Answer, sent: float) -> Iterator[str]:
        done = False
        for event in _events(response.iter_lines()):
            if event == "[DONE]":
                done = True
                continue
            chunk = _object(event)
            if "error" in chunk:
                raise _refusal_of(chunk, response.status_code, answer.request_id)
            piece = _take(chunk, answer)
            if piece:
                answer.last_token_seconds = self._clock() - sent
                if answer.first_token_seconds is None:
                    answer.first_token_seconds = answer.last_token_seconds
                answer.num_chunks += 1
                yield piece
        if not done:
            raise CliError(f"The answer broke off: the edge closed the stream (request {answer.request_id}).")

    @contextmanager
    def _calling(self) -> Generator[None]:
        try:
            yield
        except httpx.ConnectError as error:
            raise EdgeUnreachable(self._address.url) from error
        except httpx.TimeoutException as error:
            raise CliError(f"{self._address.url} did not answer in time.") from error
        except httpx.TransportError as error:
            raise CliError(
                f"The connection to {self._address.url} broke: {error or type(error).__name__}."
            ) from error


def _events(lines: Iterator[str]) -> Iterator[str]:
    """The data of each server-sent event (WHATWG HTML, 9.2.6); comments and other fields are skipped."""
    held: list[str] = []
    for line in lines:
        if line.startswith("data:"):
            held.append(line[5:].removeprefix(" "))
        elif not line and held:
            yield "\n".join(held)
            held = []


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise CliError(f"The edge sent something that is no JSON object: {text[:120]!r}")
    return cast("dict[str, Any]", value)


def _take(chunk: dict[str, Any], answer: Answer) -> str:
    """Puts a chunk's facts into `answer` and returns what a person is to read of it."""
    answer.model = str(chunk.get("model") or answer.model)
    if usage := chunk.get("usage"):
        answer.completion_tokens = int(usage.get("completion_tokens", 0))
        answer.prompt_tokens = int(usage.get("prompt_tokens", 0))
    piece = ""
    for choice in chunk.get("choices") or ():
        answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        answer.text += text
        piece += _thinking(str(delta.get("reasoning") or ""), answer) + _answering(text, answer)
    return piece


def _thinking(text: str, answer: Answer) -> str:
    before = "" if answer.thinks or not text else "(thinking) "
    answer.thinks = answer.thinks or bool(text)
    return before + text


def _answering(text: str, answer: Answer) -> str:
    before = "\n\n" if answer.thinks and text else ""
    answer.thinks = answer.thinks and not text
    return before + text


def _json(response: httpx.Response) -> dict[str, Any]:
    if response.status_code >= 400:
        raise _refusal(response)
    return _object(response.text)


def _refusal(response: httpx.Response) -> EdgeRefused:
    try:
        body = _object(response.text)
    except CliError:
        body = {"error": {"message": response.text[:300] or response.reason_phrase}}
    return _refusal_of(body, response.status_code, response.headers.get("x-request-id"))


def _refusal_of(body: dict[str, Any], status: int, request_id: str | None) -> EdgeRefused:
    error = body.get("error")
    fields = cast("dict[str, Any]", error) if isinstance(error, dict) else {"message": str(error)}
    return EdgeRefused(status, fields.get("code"), str(fields.get("message", "")), request_id)


def connect(url: str | None, key: str | None) -> EdgeClient:
    return EdgeClient(edge_address(os.environ, url, key))
