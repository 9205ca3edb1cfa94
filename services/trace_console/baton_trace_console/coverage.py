"""Time that nobody accounts for: where a trace has no span that says what happened. Pure arithmetic.

A span that handed the request on and waits does not explain the time that the later stops take: it explains
the time before and after them. So one long span around everything hides nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from baton_contracts.spans import Span

Interval = tuple[float, float]


def explained_intervals(spans: Sequence[Span]) -> list[Interval]:
    """When some stop had the request in its own hands, as Unix seconds; overlapping and unsorted."""
    return [interval for intervals in intervals_by_stop(spans).values() for interval in intervals]


def intervals_by_stop(spans: Sequence[Span]) -> dict[int, list[Interval]]:
    """The same, for each stop that reported."""
    children: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.parent_span_id:
            children[span.parent_span_id].append(span)
    found: dict[int, list[Interval]] = defaultdict(list)
    for span in spans:
        start, end = span.start, span.start + span.duration
        if away := _away(span, children):
            found[span.stop] += [(start, min(away[0], end)), (min(max(away[1], start), end), end)]
        else:
            found[span.stop].append((start, end))
    return found


def _away(span: Span, children: Mapping[str, Sequence[Span]]) -> Interval | None:
    """From the first to the last moment that later stops spent on what `span` handed to them."""
    below = _descendants(children.get(span.span_id, ()), children)
    later = [other for other in below if other.stop > span.stop]
    if not later:
        return None
    return min(other.start for other in later), max(other.start + other.duration for other in later)


def _descendants(roots: Iterable[Span], children: Mapping[str, Sequence[Span]]) -> list[Span]:
    """`roots` and all below them; a loop in the parents (a hostile or broken service) ends the walk."""
    seen: dict[str, Span] = {}
    waiting = list(roots)
    while waiting:
        span = waiting.pop()
        if span.span_id not in seen:
            seen[span.span_id] = span
            waiting.extend(children.get(span.span_id, ()))
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
