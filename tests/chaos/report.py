"""What a run was: who asked and how it ended, what was done and what that did, what was found wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.chaos.books import Row, Rows, num_stand_ins, outcomes
from tests.chaos.clients import Asked, Visit
from tests.chaos.mischief import Deed


@dataclass(frozen=True)
class Report:
    visits: Sequence[Visit]
    deeds: Sequence[Deed]
    rows: Rows
    """The ledger of the requests that were asked."""
    problems: Sequence[str]
    num_witnessed: int
    """Attempts of which an engine told in its traces."""
    seconds: float
    seed: int
    load: float
    """Mean number of processes of the whole machine that wanted a core."""

    @property
    def asked(self) -> list[Asked]:
        return [one for visit in self.visits for one in visit.tries]

    @property
    def slowest_seconds(self) -> float:
        return max(one.heard.seconds for one in self.asked)

    @property
    def ends(self) -> Counter[str]:
        """Of those that were let in."""
        return Counter(one.end for one in self.asked if one.was_let_in)

    @property
    def whole_behind_a_migration(self) -> int:
        whole = {one.request_id for one in self.asked if one.heard.complete}
        return sum(_has_moved(rows) for name, rows in self.rows.items() if name in whole)

    @property
    def whole_at_a_second_try(self) -> int:
        whole = {one.request_id for one in self.asked if one.heard.complete}
        return sum(_was_tried_again(rows) for name, rows in self.rows.items() if name in whole)

    def lines(self) -> Iterator[str]:
        """Each kind of deed, how often it was done, and how the requests that were under way then ended."""
        kinds = dict.fromkeys(deed.name for deed in sorted(self.deeds, key=lambda deed: deed.name))
        for kind in kinds:
            deeds = [deed for deed in self.deeds if deed.name == kind]
            ends = Counter(one.end for deed in deeds for one in self.asked if one.was_under_way(deed.at))
            back = max(deed.back_after or float("inf") for deed in deeds)
            yield f"{kind} {len(deeds)}×, whole again within {back:.0f} s; under way: {_told(ends)}"

    @property
    def summary(self) -> str:
        num, let_in = len(self.visits), sum(visit.was_let_in for visit in self.visits)
        at_once = sum(visit.was_let_in_at_once for visit in self.visits)
        turned_away = Counter(one.end for one in self.asked if not one.was_let_in)
        verdict = "OK" if not self.problems else f"{len(self.problems)} PROBLEMS"
        return (
            f"chaos: {verdict}: {let_in} of {num} requests let in, {at_once} at the first try, in "
            f"{self.seconds:.0f} s ({num / self.seconds:.2f}/s), seed {self.seed}, load {self.load:.1f}, "
            f"the longest {self.slowest_seconds:.0f} s: "
            f"{_told(self.ends)}; turned away and tried again: {_told(turned_away)}; "
            f"{len(self.deeds)} deeds; answers that came whole behind a migration "
            f"{self.whole_behind_a_migration}, at a second try {self.whole_at_a_second_try}; "
            f"ledger rows: {_told(outcomes(self.rows))}, {num_stand_ins(self.rows)} by stand-in; "
            f"attempts told of by engines {self.num_witnessed}"
        )


def _has_moved(rows: Sequence[Row]) -> bool:
    return any(row.outcome == "migrated" for row in rows)


def _was_tried_again(rows: Sequence[Row]) -> bool:
    return any(row.outcome == "error" for row in rows)


def _told(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"
