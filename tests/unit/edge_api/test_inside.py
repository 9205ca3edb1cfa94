"""What the edge asks of itself: which answers count, and when it asks again."""

from __future__ import annotations

import pytest

from baton_edge_api.inside import InsideAnswer, Tries


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (200, {}, None),
        (400, {}, None),
        (404, {}, None),
        (504, {}, None),
        (503, {"retry-after": "7"}, 7.0),
        (503, {}, 1.0),
        (502, {"retry-after": "soon"}, 1.0),
        (429, {"retry-after": "3600"}, 60.0),
        (429, {"x-should-retry": "false"}, None),
        (409, {}, 1.0),
    ],
)
def test_which_answers_count(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert Tries().pause_after(InsideAnswer(status, headers, b"")) == seconds


def test_a_server_that_fails_is_asked_three_times() -> None:
    tries, busy, broken = Tries(), InsideAnswer(503, {}, b""), InsideAnswer(502, {}, b"")
    answers = (broken, busy, broken, busy, busy, broken)
    assert [tries.pause_after(answer) for answer in answers] == [1.0, 1.0, 1.0, 1.0, 1.0, None]
