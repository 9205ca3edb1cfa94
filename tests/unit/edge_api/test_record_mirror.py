"""A bucket's records in memory: what can't be read is said once, and who waits for one to go is told."""

from __future__ import annotations

import logging

import pytest

from baton_contracts.base import WireModel
from baton_edge_api.record_mirror import RecordMirror


class Note(WireModel):
    text: str


def a_mirror() -> tuple[RecordMirror[Note], list[str]]:
    seen: list[str] = []
    return RecordMirror(lambda _, value: Note.decode(value), lambda entry, _: seen.append(entry)), seen


def test_an_unreadable_entry_counts_as_none_and_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    mirror, seen = a_mirror()
    mirror.put("a", Note(text="x").encode())
    for _ in range(3):
        mirror.replace({"a": b"{}", "b": Note(text="y").encode()})
    assert mirror.records == {"b": Note(text="y")}
    assert len(caplog.records) == 1
    mirror.put("a", b"[]")
    assert len(caplog.records) == 2, "it says something else now"
    assert seen == ["a", "b", "b", "b"]


def test_who_waits_for_an_entry_to_go_is_told() -> None:
    mirror, _ = a_mirror()
    mirror.put("a", Note(text="x").encode())
    with mirror.leaving("a") as known, mirror.leaving("b") as unknown, mirror.leaving("c") as other:
        mirror.remove("a")
        assert (known.is_set(), unknown.is_set()) == (True, False)
        mirror.replace({"c": b"{}"})
        assert unknown.is_set()
        assert other.is_set(), "what can't be read is as good as gone"
