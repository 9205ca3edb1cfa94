"""Time that nobody accounts for: where a trace has no span that says what happened. Pure arithmetic.

A span that handed the request on and waits does not explain the time that the later stops take: it explains
the time before and after them. So one long span around everything hides nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from baton_contracts.spans import Span

Interval = tuple[float, float]


def intervals_by_stop(spans: Sequence[Span]) -> dict[int, list[Interval]]:
    """When each stop had the request in its own hands, as Unix seconds; overlapping and unsorted."""
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
    """Who descends from whom. Each stop's spans gather what is below them once, however many they are."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._by_id = {span.span_id: span for span in spans}
        self._children: dict[str, list[Span]] = defaultdict(list)
        for span in spans:
            if span.parent_span_id:
                self._children[span.parent_span_id].append(span)
        self._own: dict[str, Span] = {}
        self._later: dict[str, _Stretches] = {}

    def away(self, span: Span) -> Interval | None:
        """From the first to the last moment that later stops spent on what `span` handed to them.

        What a part of a stop hands on may hang below the stop's own span: then it counts from its start on.
        """
        own = self._own_span(span)
        if own.span_id not in self._later:
            later = [other for other in self._below(own) if other.stop > own.stop]
            self._later[own.span_id] = _Stretches(
                (other.start, other.start + other.duration) for other in later
            )
        return self._later[own.span_id].hull(span.start, span.start + span.duration)

    def _own_span(self, span: Span) -> Span:
        """The span above `span` that stands for its whole stop; itself if there is none."""
        passed = {span.span_id: span}
        parent = self._by_id.get(span.parent_span_id or "")
        while parent and parent.stop == span.stop and parent.span_id not in passed:
            span = self._own.get(parent.span_id, parent)
            passed |= {parent.span_id: parent, span.span_id: span}
            parent = self._by_id.get(span.parent_span_id or "")
        self._own |= dict.fromkeys(passed, span)
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


class _Stretches:
    """Intervals by their start. `self._last[k][i]` is the latest end of the 2**k that follow `i`."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        ordered = sorted(intervals)
        self._starts = [start for start, _ in ordered]
        self._last = [[end for _, end in ordered]]
        while 2 ** len(self._last) <= len(ordered):
            half, ends = 2 ** (len(self._last) - 1), self._last[-1]
            self._last.append([max(pair) for pair in zip(ends, ends[half:], strict=False)])

    def hull(self, start: float, end: float) -> Interval | None:
        """From the first start to the last end of those that begin within; None if none does."""
        first, behind = bisect_left(self._starts, start), bisect_left(self._starts, end)
        if first >= behind:
            return None
        power = (behind - first).bit_length() - 1
        ends = self._last[power]
        return self._starts[first], max(ends[first], ends[behind - 2**power])


def gaps(intervals: Iterable[Interval]) -> Iterator[Interval]:
    """The stretches between the first start and the last end that no interval covers."""
    covered_until: float | None = None
    for start, end in sorted(intervals):
        if covered_until is not None and start > covered_until:
            yield covered_until, start
        covered_until = end if covered_until is None else max(covered_until, end)


def largest_gap(intervals: Iterable[Interval]) -> float:
    """Seconds of the longest of them."""
    return max((end - start for start, end in gaps(intervals)), default=0.0)


def covered_seconds(intervals: Iterable[Interval]) -> float:
    """How long at least one of them holds."""
    total = 0.0
    covered_until = float("-inf")
    for start, end in sorted(intervals):
        if end > covered_until:
            total += end - max(start, covered_until)
            covered_until = end
    return total
