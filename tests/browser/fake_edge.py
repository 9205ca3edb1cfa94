"""An edge for browser tests: the real pages, answers that a test chooses, and a note of what was asked.

A thread serves each connection; a streamed answer waits at gates that the test opens.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from baton_trace_console.pages import Pages
from baton_trace_console.trace_view import trace_object
from tests.support.traces import make_span, whole_relay

KEY = "sk-baton-test"


@dataclass
class Script:
    """What the edge does with the next question."""

    tokens: list[str] = field(default_factory=lambda: ["Hello", " there."])
    reasoning: list[str] = field(default_factory=list)
    citations: list[str] = field(default_factory=list)
    finish_reason: str = "stop"
    status: int = 200
    error: dict[str, Any] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    break_after: int | None = None
    """Tokens after which an error event ends the stream."""
    endless: bool = False
    """Goes on until the client leaves."""


class FakeEdge:
    def __init__(self) -> None:
        self.script = Script()
        self.asked: list[dict[str, Any]] = []
        self.request_ids: list[str] = []
        self.listed: list[str] = []
        """Queries of lists of traces."""
        self.first_token = threading.Event()
        self.first_token.set()
        self.client_left = threading.Event()
        self.late_stop: int | None = None
        """It has not reported yet when the trace is asked for first."""
        self.pages = Pages()
        self.url = ""

    def trace(self, request_id: str) -> dict[str, Any]:
        start = time.time() - 1
        spans = [span for span in whole_relay(start) if span.stop != self.late_stop]
        self.late_stop = None
        if self.client_left.is_set():
            spans = [span.model_copy(update={"status": "cancelled"}) for span in spans]
        prefill = make_span(7, start + 0.07, start + 0.075, "prefill", attributes={"prompt_tokens": 42})
        return trace_object(request_id, sorted([*spans, prefill], key=lambda span: span.start), time.time())

    def newest(self, request_id: str, query: str) -> dict[str, Any]:
        """One trace a page; two pages."""
        self.listed.append(query)
        summary = self.trace(request_id)["summary"]
        if "status=error" in query:
            summary |= {"status": "error", "error": "queue_full", "error_stop": "inference_router"}
        next_page = None if "page=" in query else "77"
        return {"data": [{"request_id": request_id, "summary": summary}], "next_page": next_page}


class _Handler(BaseHTTPRequestHandler):
    edge: FakeEdge
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        """Quiet."""

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if page := self.edge.pages.find(path):
            self._send(200, page.body.encode(), page.media_type)
        elif not self._has_key():
            self._refuse(401, "invalid_api_key", "The API key is not valid.")
        elif path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "auto"}, {"id": "smollm2-135m"}]})
        elif path.startswith("/v1/conversations/"):
            self._conversation(path.rsplit("/", 1)[-1])
        elif path == "/v1/traces":
            rid = self.edge.request_ids[-1] if self.edge.request_ids else "ab" * 16
            self._json(200, self.edge.newest(rid, urlsplit(self.path).query))
        elif path.startswith("/v1/traces/"):
            self._json(200, self.edge.trace(path.rsplit("/", 1)[-1]))
        else:
            self._refuse(404, "not_found", "There is no such page.")

    def _conversation(self, wanted: str) -> None:
        turns = [
            {
                "request_id": request_id,
                "model": "smollm2-135m",
                "asked": asked["messages"],
                "answer": "".join(self.edge.script.tokens),
                "cut_short": False,
            }
            for request_id, asked in zip(self.edge.request_ids, self.edge.asked, strict=True)
            if asked["conversation_id"] == wanted
        ]
        if turns:
            self._json(200, {"object": "conversation", "id": wanted, "turns": turns})
        else:
            self._refuse(404, "not_found", "There is no such conversation.")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        script, edge = self.edge.script, self.edge
        if not self._has_key():
            self._refuse(401, "invalid_api_key", "The API key is not valid.")
            return
        edge.asked.append(body)
        edge.request_ids.append(self.headers["x-request-id"])
        if script.error:
            self._json(script.status, {"error": script.error}, script.headers)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("x-request-id", self.headers["x-request-id"])
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        try:
            self._stream(script)
        except (BrokenPipeError, ConnectionResetError):
            edge.client_left.set()

    def _stream(self, script: Script) -> None:
        edge = self.edge
        self._event(choices=[_choice({"role": "assistant", "content": ""})])
        self.wfile.write(b": ping\n\n")
        edge.first_token.wait(20)
        for thought in script.reasoning:
            self._event(choices=[_choice({"reasoning": thought, "reasoning_content": thought})])
        for number, token in enumerate(script.tokens):
            if number == script.break_after:
                error = {
                    "message": "The engine was lost.",
                    "type": "server_error",
                    "param": None,
                    "code": "stop_lost",
                }
                self.wfile.write(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
                return
            self._event(choices=[_choice({"content": token})])
        while script.endless:
            self._event(choices=[_choice({"content": "and on "})])
            edge.client_left.wait(0.02)
        extras = {"baton": {"citations": script.citations}} if script.citations else {}
        self._event(choices=[_choice({}, script.finish_reason)], **extras)
        self._event(
            choices=[],
            usage={"prompt_tokens": 42, "completion_tokens": len(script.tokens), "total_tokens": 0},
        )
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, **fields: Any) -> None:
        chunk = {"id": "chatcmpl-x", "object": "chat.completion.chunk", "model": "smollm2-135m", **fields}
        data = b"data: " + json.dumps(chunk).encode() + b"\n\n"
        for piece in (data[:9], data[9:]):  # events do not come in one piece
            self.wfile.write(piece)
            self.wfile.flush()

    def _has_key(self) -> bool:
        return self.headers["authorization"] == f"Bearer {KEY}"

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._json(status, {"error": {"message": message, "type": "x", "param": None, "code": code}})

    def _json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers)

    def _send(self, status: int, body: bytes, media_type: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _choice(delta: dict[str, str], finish_reason: str | None = None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


@contextmanager
def running_fake_edge() -> Iterator[FakeEdge]:
    edge = FakeEdge()
    handler = type("Handler", (_Handler,), {"edge": edge})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    edge.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield edge
    finally:
        edge.first_token.set()
        edge.client_left.set()
        server.shutdown()
        thread.join()
        server.server_close()
