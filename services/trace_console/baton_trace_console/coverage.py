"""Time that nobody accounts for: where a trace has no span that says what happened. Pure arithmetic.

A span that handed the request on and waits does not explain the time that the later stops take: it explains
the time before and after them. So one long span around everything hides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from baton_contracts.spans import Span

Interval = tuple[float, float]


def explained_intervals(spans: Sequence[Span]) -> list[Interval]:
    """When some stop had the request in its own hands, as Unix seconds; overlapping and unsorted."""
    return [interval for intervals in intervals_by_stop(spans).values() for interval in intervals]


def intervals_by_stop(spans: Sequence[Span]) -> dict[int, list[Interval]]:
    """The same, for each stop that reported."""
    family = _Family(spans)
    found: dict[int, list[Interval]] = defaultdict(list)
    for span in spans:
        start, end = span.start, span.start + span.duration
        if away := family.away(span):
            found[span.stop] += [(start, min(away[0], end)), (min(max(away[1], start), end), end)]
        else:
            found[span.stop].append((start, end))
    return found


class _Family:
    """Who descends from whom."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._by_id = {span.span_id: span for span in spans}
        self._children: dict[str, list[Span]] = defaultdict(list)
        for span in spans:
            if span.parent_span_id:
                self._children[span.parent_span_id].append(span)

    def away(self, span: Span) -> Interval | None:
        """From the first to the last moment that later stops spent on what `span` handed to them.

        What a part of a stop hands on may hang below the stop's own span: then it counts from its start on.
        """
        later = [other for other in self._below(self._own_span(span)) if other.stop > span.stop]
        during = [other for other in later if span.start <= other.start < span.start + span.duration]
        if not during:
            return None
        return min(other.start for other in during), max(other.start + other.duration for other in during)

    def _own_span(self, span: Span) -> Span:
        """The span above `span` that stands for its whole stop; itself if there is none."""
        seen = {span.span_id}
        parent = self._by_id.get(span.parent_span_id or "")
        while parent and parent.stop == span.stop and parent.span_id not in seen:
            seen.add(parent.span_id)
            span = parent
            parent = self._by_id.get(span.parent_span_id or "")
        return span

    def _below(self, span: Span) -> list[Span]:
        """All that descend from `span`; a loop in the parents (a hostile or broken service) ends the walk."""
        seen: dict[str, Span] = {}
        waiting = list(self._children.get(span.span_id, ()))
        while waiting:
            found = waiting.pop()
            if found.span_id not in seen:
                seen[found.span_id] = found
                waiting.extend(self._children.get(found.span_id, ()))
        return list(seen.values())


def largest_gap(intervals: Iterable[Interval]) -> float:
    """Seconds of the longest stretch between the first start and the last end that no interval covers."""
    gap = 0.0
    covered_until: float | None = None
    for start, end in sorted(intervals):
        if covered_until is not None and start > covered_until:
            gap = max(gap, start - covered_until)
        covered_until = end if covered_until is None else max(covered_until, end)
    return gap


def covered_seconds(intervals: Iterable[Interval]) -> float:
    """How long at least one of them holds."""
    total = 0.0
    covered_until = float("-inf")
    for start, end in sorted(intervals):
        if end > covered_until:
            total += end - max(start, covered_until)
            covered_until = end
    return total
