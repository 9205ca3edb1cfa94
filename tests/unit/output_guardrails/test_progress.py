"""What a later attempt says is passed on from where the stream is, and nowhere else."""

from __future__ import annotations

import pytest

from baton_contracts.frames import Data, Prologue
from baton_output_guardrails.progress import DoesNotFit, Progress

RID = "ab" * 16


def prologue(*resumed: int, attempt: int = 1) -> Prologue:
    names = {"model": "m", "replica": "e", "gateway": "g", "guard": "o"}
    return Prologue(request_id=RID, sender="e", seq=0, attempt=attempt, resumed=resumed, **names)


def data(*token_ids: int, index: int = 0, text: str = "x") -> Data:
    return Data(request_id=RID, sender="e", seq=1, index=index, token_ids=token_ids, text=text)


def after(*token_ids: int) -> Progress:
    progress = Progress()
    progress.begin(prologue())
    for token_id in token_ids:
        assert progress.is_new(data(token_id))
    return progress


def test_it_goes_on_at_the_very_token() -> None:
    progress = after(1, 2)
    progress.begin(prologue(2, attempt=2))
    assert progress.is_new(data(3))


def test_what_came_already_is_dropped_once() -> None:
    progress = after(1, 2, 3, 4)
    progress.begin(prologue(1, attempt=2))
    assert [progress.is_new(data(2)), progress.is_new(data(3, 4)), progress.is_new(data(4))] == [
        False,
        False,
        True,
    ]


def test_an_attempt_from_the_start_says_all_again() -> None:
    progress = after(1)
    progress.begin(prologue(attempt=2))
    assert [progress.is_new(data(1)), progress.is_new(data(2))] == [False, True]


def test_each_answer_has_its_own_place() -> None:
    progress = after(1, 2)
    assert progress.is_new(data(7, index=1))
    progress.begin(prologue(1, 1, attempt=2))
    assert progress.is_new(data(8, index=1))
    assert not progress.is_new(data(2))
    assert progress.is_new(data(3))


def test_a_hole_is_told() -> None:
    with pytest.raises(DoesNotFit, match="2 tokens of it did not come here"):
        after(1).begin(prologue(3, attempt=2))
    with pytest.raises(DoesNotFit, match="1 tokens"):
        after(1).begin(prologue(1, 1, attempt=2))


@pytest.mark.parametrize("said", [(9,), (2, 3, 4)], ids=["another token", "a step over the border"])
def test_other_words_are_told(said: tuple[int, ...]) -> None:
    progress = after(1, 2, 3)
    progress.begin(prologue(1, attempt=2))
    with pytest.raises(DoesNotFit):
        progress.is_new(data(*said))


def test_text_without_ids_passes_where_nothing_is_repeated() -> None:
    progress = after()
    assert progress.is_new(data())
    progress = after(1)
    progress.begin(prologue(attempt=2))
    assert not progress.is_new(data()), "it belongs to tokens that came before"
