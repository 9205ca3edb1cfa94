"""How the books make room: a few rows at a time, none where it would make them late."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from baton_after_answer.books import Books, Entry, RowRefused
from baton_after_answer.courtesy import Courtesy
from baton_after_answer.records import ledger_row
from tests.support.after_records import usage_record


class Core:
    def __init__(self) -> None:
        self.is_asked = False
        self.num_given_way = 0
        self.courtesy = Courtesy(lambda: self.is_asked, self._give_way)

    def _give_way(self) -> None:
        self.num_given_way += 1


@pytest.mark.parametrize(
    ("num_rows", "sizes", "times"),
    [(0, [], 0), (1, [1], 1), (8, [8], 1), (20, [8, 8, 4], 3), (95, [8] * 11 + [7], 12), (96, [96], 0)],
)
def test_few_rows_are_done_in_parts_and_many_at_once(num_rows: int, sizes: list[int], times: int) -> None:
    core, rows = Core(), list(range(num_rows))
    parts = list(core.courtesy.few_at_a_time(rows))
    assert [row for part in parts for row in part] == rows
    assert ([len(part) for part in parts], core.num_given_way) == (sizes, times)


def test_who_comes_in_the_middle_to_ask_the_books_has_not_to_wait_for_others() -> None:
    core = Core()
    for _ in core.courtesy.few_at_a_time(range(40)):
        core.is_asked = True
    assert core.num_given_way == 1


def test_rows_written_in_parts_are_one_transaction(sqlite_engine: Engine) -> None:
    core = Core()
    good = [ledger_row(usage_record(), 1.0) for _ in range(19)]
    bad = ledger_row(usage_record(), 1.0) | {"model": None}
    books = Books(sqlite_engine, core.courtesy.few_at_a_time)
    with pytest.raises(RowRefused, match="NOT NULL"):
        books.write(Entry(ledger=[*good, bad]))
    assert books.usage("acme", ()) == ()
    books.write(Entry(ledger=good))
    assert (len(books.usage("acme", ())), core.num_given_way) == (19, 6)
