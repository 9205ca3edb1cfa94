"""The output of a response as the events of its stream have told it: what is left of an answer whose edge is
lost. Pure.

Owns the way back from events to items; the way there is the EventWriter's. What no event calls done has not
come to its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from baton_edge_api.responses.events import numbered

_TEXTS = ("response.output_text.delta", "response.reasoning_text.delta")


def told_output(pieces: Iterable[bytes]) -> list[dict[str, Any]]:
    """`pieces` of a stream, in order."""
    items: dict[int, _Item] = {}
    for piece in pieces:
        for _, told in numbered(piece):
            event = orjson.loads(told[told.index(b"\ndata: ") + 7 :])
            if event["type"] == "response.output_item.added":
                items[event["output_index"]] = _Item(event["item"])
            elif item := items.get(event.get("output_index", -1)):
                item.take(event)
    return [items[number].whole() for number in sorted(items)]


class _Item:
    """One of them, as far as it was told."""

    def __init__(self, shell: dict[str, Any]) -> None:
        self._item = shell | {"status": "incomplete"}
        self._parts: list[dict[str, Any]] = []
        self._logprobs: list[Any] = []
        self._pieces: list[str] = []

    def take(self, event: dict[str, Any]) -> None:
        match event["type"]:
            case "response.content_part.added":
                self._parts = [event["part"]]
            case "response.output_item.done":
                self._item, self._parts, self._pieces = event["item"], [], []
            case kind if kind in _TEXTS or kind == "response.function_call_arguments.delta":
                self._pieces.append(event["delta"])
                self._logprobs += event.get("logprobs", ())
            case _:
                pass  # says again what others say

    def whole(self) -> dict[str, Any]:
        text = "".join(self._pieces)
        if self._parts:
            more = {"text": text} | ({"logprobs": self._logprobs} if "logprobs" in self._parts[0] else {})
            return self._item | {"content": [self._parts[0] | more]}
        return self._item | ({"arguments": text} if text else {})
