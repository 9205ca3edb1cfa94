"""What may become a request id, and a subject token."""

from __future__ import annotations

import pytest

from baton_contracts.identifiers import new_request_id, parse_request_id, subject_token

HEX = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        (HEX, HEX),
        (HEX.upper(), HEX),
        ("4bf92f35-77b3-4da6-a3ce-929d0e0e4736", HEX),
        ("a.b.>", None),
        ("*" * 32, None),
        (HEX + "\n", None),
        (HEX + "0", None),
        (HEX[:-1], None),
        ("0" * 32, None),
        ("", None),
        ("f" * 10_000, None),
        ("٣" * 32, None),
        ("4bf92f3577-b34d-a6a3-ce92-9d0e0e4736", None),
    ],
)
def test_parse_request_id(raw: str, parsed: str | None) -> None:
    assert parse_request_id(raw) == parsed


def test_a_new_id_is_one_that_would_be_accepted() -> None:
    fresh = new_request_id()
    assert parse_request_id(fresh) == fresh


def test_subject_tokens_are_single_tokens_and_distinct() -> None:
    assert subject_token("smollm2-135m") == "smollm2-135m"
    assert subject_token("qwen2.5-coder") == "qwen2=2E5-coder"
    names = ["a.b", "a_b", "a=2Eb", "a b", "ä>", "*"]
    tokens = [subject_token(name) for name in names]
    assert len(set(tokens)) == len(names)
    assert not any(set(token) & set(".*> \t\r\n") for token in tokens)
