"""Endings of grammar go; words that only look alike stay apart."""

from __future__ import annotations

import pytest

from baton_llm_gateway.inflection import root_of


@pytest.mark.parametrize(
    "words",
    [
        "car cars",
        "care cares cared caring",
        "ship ships shipped shipping",
        "change changes changed changing",
        "make makes making",
        "use uses used using",
        "cry cries cried crying",
        "plan plans planned planning",
        "plane planes",
        "stare stares staring",
        "star stars starred starring",
        "create creates creating",
        "agree agrees agreed",
        "add adds added adding",
        "tie ties tied tying",
        "die dies died dying",
        "boil boils boiled boiling",
        "process processes processed",
        "box boxes",
        "city cities",
        "day days",
        "news",
    ],
)
def test_forms_of_one_word(words: str) -> None:
    assert len({root_of(word) for word in words.split()}) == 1


@pytest.mark.parametrize(
    "words",
    [
        "car care",
        "plan plane",
        "not note",
        "use us",
        "news new",
        "rat rate",
        "win wine",
        "universe university universal",
        "import important",
        "department depart",
        "experiment experience",
        "organ organic organize",
        "arms arm",
        "goods good",
        "means mean",
        "united unit",
        "red bed king thing",
    ],
)
def test_words_that_look_alike(words: str) -> None:
    assert len({root_of(word) for word in words.split()}) == len(words.split())
