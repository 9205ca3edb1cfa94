from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_edge_api.json_text import NotJson, parse_json


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"a": 1,}',
        b"\xff\xfe",
        b'{"a": "\xc3"}',
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1, "a": 1}',
        b'{"a": {"b": 1, "b": 2}}',
        b'{"a": "\\ud800"}',
        b'{"a": "\\uDC00 alone"}',
        b'{"a": "\\ud800\\u0041"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "line\nbreak"}',
        b'{"a": 1} x',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(NotJson):
        parse_json(body)


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}


def test_the_reason_names_the_place_and_not_the_text() -> None:
    with pytest.raises(NotJson, match="line 2, column 1") as caught:
        parse_json(b'{"secret": 1,\n]')
    assert "secret" not in str(caught.value)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(_JSON, st.booleans())
def test_every_json_value_comes_through(value: object, ascii_only: bool) -> None:
    try:
        body = json.dumps(value, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        return
    assert parse_json(body) == value
