"""The lines of a batch's file: which are requests, what is wrong with others, and what a result looks like.

Owns the form of input and output lines. Pure, but for reading the file that it is given.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any, cast

import orjson

from baton_edge_api.batches.records import LineProblem
from baton_edge_api.json_text import NotJson, parse_json
from baton_edge_api.typed_body import understood

MAX_PROBLEMS = 100
"""That are told of one file; one is enough to refuse it."""


@dataclass(frozen=True)
class Line:
    number: int
    """Of the file, from 1."""
    custom_id: str
    body: dict[str, Any]

    @property
    def model(self) -> str:
        model = self.body.get("model")
        return model if isinstance(model, str) else ""


@dataclass
class Survey:
    """A file as a whole. `places` has number, offset and length of each request."""

    places: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])
    problems: list[LineProblem] = field(default_factory=list[LineProblem])


@dataclass(frozen=True)
class _Limits:
    lines: int
    line_bytes: int


def survey(file: IO[bytes], endpoint: str, *, max_lines: int, max_line_bytes: int) -> Survey:
    """Reads all of it; slow for a large one, so call it in a thread."""
    found, ids = Survey(), set[str]()
    limits = _Limits(max_lines, max_line_bytes)
    for number, offset, raw in _raw_lines(file, max_line_bytes):
        if len(found.problems) >= MAX_PROBLEMS:
            break
        if not raw.strip():
            continue
        if len(found.places) >= limits.lines:
            text = f"The file has more than {limits.lines} requests. Split it."
            found.problems.append(LineProblem(code="too_many_requests", message=text))
            break
        read = _judge(number, raw, endpoint, limits)
        if isinstance(read, Line) and read.custom_id in ids:
            text = "This custom_id stands in an earlier line. Give each request its own."
            read = LineProblem(code="duplicate_custom_id", message=text, param="custom_id", line=number)
        if isinstance(read, LineProblem):
            found.problems.append(read)
            continue
        ids.add(read.custom_id)
        found.places.append((number, offset, len(raw)))
    if not found.places and not found.problems:
        text = "The file holds no request. Each line is one: custom_id, method, url, body."
        found.problems.append(LineProblem(code="empty_file", message=text))
    return found


def _raw_lines(file: IO[bytes], longest: int) -> Iterator[tuple[int, int, bytes]]:
    """Number, offset and text. Of a line that is too long, only its beginning is ever in memory."""
    file.seek(0)
    number = offset = 0
    while raw := file.readline(longest + 2):
        number += 1
        length = len(raw)
        yield number, offset, raw
        while not raw.endswith(b"\n") and (raw := file.readline(longest)):
            length += len(raw)
        offset += length


def _judge(number: int, raw: bytes, endpoint: str, limits: _Limits) -> Line | LineProblem:
    if len(raw.rstrip(b"\r\n")) > limits.line_bytes:
        text = f"The line is longer than {limits.line_bytes} bytes."
        return LineProblem(code="line_too_long", message=text, line=number)
    try:
        value = parse_json(raw)
    except NotJson as error:
        return LineProblem(code="invalid_json_line", message=f"Not valid JSON: {error}.", line=number)
    if not isinstance(value, dict):
        return LineProblem(code="invalid_json_line", message="The line must be a JSON object.", line=number)
    return _request(number, cast("dict[str, Any]", value), endpoint)


def _request(number: int, value: dict[str, Any], endpoint: str) -> Line | LineProblem:
    custom_id, body = value.get("custom_id"), value.get("body")

    def wrong(code: str, param: str, text: str) -> LineProblem:
        return LineProblem(code=code, message=text, param=param, line=number)

    for name in ("custom_id", "method", "url", "body"):
        if value.get(name) is None:
            return wrong("missing_required_parameter", name, f"{name} is missing.")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= 512:
        return wrong("invalid_custom_id", "custom_id", "custom_id must be a text of 1 to 512 characters.")
    if value["method"] != "POST":
        return wrong("invalid_method", "method", "method must be POST.")
    if value["url"] != endpoint:
        return wrong("mismatched_url", "url", f"url must be the batch's endpoint, {endpoint}.")
    if not isinstance(body, dict):
        return wrong("invalid_body", "body", "body must be a JSON object.")
    return Line(number, custom_id, cast("dict[str, Any]", body))


async def line_at(file: IO[bytes], place: tuple[int, int, int]) -> Line:
    """Of a file that was surveyed without a problem."""
    number, offset, length = place
    file.seek(offset)
    value = await understood(file.read(length), json.loads)
    return Line(number, value["custom_id"], value["body"])


def request_id_of_line(batch_id: str, number: int) -> str:
    """The same each time the line is run: its attempts stand together in ledger and trace."""
    return hashlib.sha256(f"{batch_id}:{number}".encode()).hexdigest()[:32]


def answered(batch_id: str, line: Line, status: int, body: bytes) -> bytes:
    """`body` is JSON, and goes in as it is."""
    request_id = request_id_of_line(batch_id, line.number)
    response = {"status_code": status, "request_id": request_id, "body": orjson.Fragment(body)}
    return _result(request_id, line.custom_id, response, None)


def not_answered(batch_id: str, line: Line, code: str, message: str) -> bytes:
    request_id = request_id_of_line(batch_id, line.number)
    return _result(request_id, line.custom_id, None, {"code": code, "message": message})


def _result(request_id: str, custom_id: str, response: object, error: object) -> bytes:
    value = {"id": f"batch_req_{request_id}", "custom_id": custom_id, "response": response, "error": error}
    return orjson.dumps(value)


def succeeded(result: bytes) -> bool:
    response = orjson.loads(result)["response"]
    return bool(response) and response["status_code"] == 200
