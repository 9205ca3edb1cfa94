"""Server-sent events: however the bytes were cut, the same events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_llm_gateway.providers import event_stream
from baton_llm_gateway.providers.event_stream import Event, EventReader, EventTooLarge

ROUGH = (
    "\ufeff: a comment\r\n\r\ndata: one\n\ndata:two\ndata:  lines\r\n\r\nevent: error\rdata: é☃\r\rid: 7\n\n"
    'data: {"a":1}\n\n\n\ndata: last'
).encode()
EVENTS = [
    Event(b"one"),
    Event(b"two\n lines"),
    Event("é☃".encode(), "error"),
    Event(b'{"a":1}'),
    Event(b"last"),
]


def read(pieces: list[bytes]) -> list[Event]:
    reader = EventReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    return events + reader.close()


def test_all_line_ends_comments_and_an_event_without_its_empty_line() -> None:
    assert read([ROUGH]) == EVENTS


@given(st.lists(st.integers(0, len(ROUGH)), max_size=12))
def test_any_cut_gives_the_same_events(places: list[int]) -> None:
    cuts = [0, *sorted(places), len(ROUGH)]
    assert read([ROUGH[a:b] for a, b in pairwise(cuts)]) == EVENTS


def test_byte_by_byte() -> None:
    assert read([bytes([byte]) for byte in ROUGH]) == EVENTS


def test_a_name_does_not_outlive_its_event() -> None:
    assert read([b"event: error\n\ndata: x\n\n"]) == [Event(b"x")]


def test_what_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_BYTES", 100)
    reader = EventReader()
    for _ in range(9):
        reader.feed(b"data: 0123456789\n")
    with pytest.raises(EventTooLarge):
        reader.feed(b"data: 0123456789 and more of it")


def test_and_so_is_what_says_nothing_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT_BYTES", 100)
    reader = EventReader()
    for _ in range(101):
        reader.feed(b"data:\n")
    with pytest.raises(EventTooLarge):
        reader.feed(b"data:\n")
