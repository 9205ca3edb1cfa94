"""Finds stop strings in text that arrives piece by piece.

Owns the matching and how much text must be held back. Knows nothing of tokens or bytes.

The rule: the stop that is complete first wins; of several complete at the same character, the longest.
This is the only rule that does not depend on how the text was split, and it needs no look-ahead. What
is held back is exactly the longest end of the text that begins some stop string. Both come from an
Aho-Corasick automaton (Aho and Corasick, 1975): its depth is the number of characters to hold.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StopScan:
    """`text` can be shown; `stop` is the stop string that ended it, if one did."""

    text: str
    stop: str | None = None


@dataclass(slots=True)
class _Node:
    depth: int
    children: dict[str, _Node] = field(default_factory=dict[str, "_Node"])
    fallback: _Node | None = None  # the longest proper suffix that begins some stop; None at the root
    longest: str | None = None  # the longest stop that ends here


class StopMatcher:
    """One text's matching state. Cost is amortised O(1) a character, whatever the number of stops."""

    def __init__(self, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("a stop string is empty")
        self._root = _build(stops)
        self._node = self._root
        self._held = ""

    @property
    def held(self) -> str:
        """Text that may be the beginning of a stop string."""
        return self._held

    def push(self, text: str) -> StopScan:
        """Take more text; give back what can no longer belong to a stop, cut before a complete stop.

        After a stop was found the matcher starts afresh with whatever is pushed next.
        """
        pending = self._held + text
        for position, character in enumerate(text, start=len(self._held)):
            self._advance(character)
            stop = self._node.longest
            if stop is not None:
                self._reset()
                return StopScan(pending[: position + 1 - len(stop)], stop)
        shown = len(pending) - self._node.depth
        self._held = pending[shown:]
        return StopScan(pending[:shown])

    def flush(self) -> str:
        """The text ends here: what was held is ordinary text after all."""
        held = self._held
        self._reset()
        return held

    def _advance(self, character: str) -> None:
        node: _Node | None = self._node
        while node is not None:
            child = node.children.get(character)
            if child is not None:
                self._node = child
                return
            node = node.fallback
        self._node = self._root

    def _reset(self) -> None:
        self._node = self._root
        self._held = ""


def _build(stops: Sequence[str]) -> _Node:
    root = _Node(0)
    for stop in stops:
        node = root
        for character in stop:
            node = node.children.setdefault(character, _Node(node.depth + 1))
        node.longest = stop
    _link(root)
    return root


def _link(root: _Node) -> None:
    """Breadth first, so that every fallback, being shorter, is finished before it is used."""
    queue = deque([root])
    while queue:
        node = queue.popleft()
        for character, child in node.children.items():
            child.fallback = _fallback(node, character, root)
            child.longest = child.longest or child.fallback.longest
            queue.append(child)


def _fallback(parent: _Node, character: str, root: _Node) -> _Node:
    node = parent.fallback
    while node is not None:
        if character in node.children:
            return node.children[character]
        node = node.fallback
    return root
