"""Files of batches: what is read, what is refused and how, and what a result looks like."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_edge_api.batches.lines import (
    Line,
    Survey,
    answered,
    line_at,
    not_answered,
    request_id_of_line,
    succeeded,
    survey,
)
from tests.support.batch_files import CHAT, jsonl, line


def surveyed(content: bytes, **limits: int) -> Survey:
    bounds = {"max_lines": 100, "max_line_bytes": 4096} | limits
    return survey(io.BytesIO(content), CHAT, **bounds)


async def test_good_lines_are_found_where_they_are_blank_ones_are_passed() -> None:
    content = jsonl(line("a")) + b"\n  \r\n" + jsonl(line("b", "ü☃"))[:-1]
    found = surveyed(content)
    assert found.problems == []
    assert [number for number, _, _ in found.places] == [1, 4]
    read = [await line_at(io.BytesIO(content), place) for place in found.places]
    assert [item.custom_id for item in read] == ["a", "b"]
    assert read[1].body["messages"][0]["content"] == "ü☃"
    assert read[1].model == "smollm2-135m"


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"custom_id": None}, "missing_required_parameter", "custom_id"),
        ({"custom_id": ""}, "invalid_custom_id", "custom_id"),
        ({"custom_id": 7}, "invalid_custom_id", "custom_id"),
        ({"custom_id": "x" * 513}, "invalid_custom_id", "custom_id"),
        ({"method": "GET"}, "invalid_method", "method"),
        ({"url": "/v1/embeddings"}, "mismatched_url", "url"),
        ({"body": None}, "missing_required_parameter", "body"),
        ({"body": "x"}, "invalid_body", "body"),
    ],
)
def test_a_line_that_is_no_request_is_named(changes: dict[str, Any], code: str, param: str) -> None:
    found = surveyed(jsonl(line("a"), line("b") | changes))
    (problem,) = found.problems
    assert (problem.code, problem.param, problem.line) == (code, param, 2)


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "empty_file"),
        (b"\n \n", "empty_file"),
        (b"{not json}\n", "invalid_json_line"),
        (b"[]\n", "invalid_json_line"),
        (b'{"custom_id": "\xff"}\n', "invalid_json_line"),
        (b'{"a": 1, "a": 2}\n', "invalid_json_line"),
        (jsonl(line("a"), line("a")), "duplicate_custom_id"),
        (jsonl(line("a", "x" * 5000)), "line_too_long"),
        (jsonl(*(line(str(number)) for number in range(101))), "too_many_requests"),
    ],
)
def test_a_file_that_is_no_batch_is_told_why(content: bytes, code: str) -> None:
    assert [problem.code for problem in surveyed(content).problems] == [code]


def test_a_line_that_is_too_long_does_not_hide_those_behind_it() -> None:
    found = surveyed(jsonl(line("a", "x" * 30_000), line("b")))
    assert [(problem.code, problem.line) for problem in found.problems] == [("line_too_long", 1)]
    assert [number for number, _, _ in found.places] == [2]


def test_a_hundred_problems_are_enough() -> None:
    assert len(surveyed(b"x\n" * 1000, max_lines=5000).problems) == 100


@given(st.lists(st.text(max_size=60), min_size=1, max_size=20))
async def test_each_line_is_read_as_it_was_written(texts: list[str]) -> None:
    written = [line(str(number), text) for number, text in enumerate(texts)]
    content = b"\n".join(json.dumps(item, ensure_ascii=False).encode() for item in written)
    found = surveyed(content)
    assert [(await line_at(io.BytesIO(content), place)).body for place in found.places] == [
        item["body"] for item in written
    ]


def test_a_result_holds_the_answer_as_it_is() -> None:
    asked = Line(3, "mine", {})
    result = answered("batch_1", asked, 200, b'{"choices": [1.50]}')
    assert json.loads(result) == {
        "id": f"batch_req_{request_id_of_line('batch_1', 3)}",
        "custom_id": "mine",
        "response": {
            "status_code": 200,
            "request_id": request_id_of_line("batch_1", 3),
            "body": {"choices": [1.5]},
        },
        "error": None,
    }
    assert succeeded(result)
    assert not succeeded(answered("batch_1", asked, 400, b"{}"))
    late = not_answered("batch_1", asked, "batch_expired", "Too late.")
    assert json.loads(late)["error"] == {"code": "batch_expired", "message": "Too late."}
    assert not succeeded(late)


def test_a_line_has_the_same_request_id_each_time_and_no_other_has_it() -> None:
    ids = [request_id_of_line(batch, number) for batch in ("a", "b") for number in range(1, 100)]
    assert len(set(ids)) == len(ids)
    assert all(len(request_id) == 32 for request_id in ids)
    assert request_id_of_line("a", 1) == ids[0]
