"""Code words and the names of persons: told apart by their neighbours, measured on a labelled set."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from baton_input_guardrails.code_words import persons, spread
from baton_input_guardrails.personal_data import PersonalDataAnalyser
from tests.support.names_set import SEEN, UNSEEN, labelled


def kept(marked: str) -> list[str]:
    """`marked` shows with « » what the model found."""
    text, finds = labelled(marked)
    return [text[start:end] for start, end in persons(text, finds)]


@pytest.mark.parametrize(
    ("marked", "names"),
    [
        ("ask «Maria Keller»", ["Maria Keller"]),
        ("«Peter Miller[12»]", ["Peter Miller"]),
        ("«[Maria Keller](https://x.org/maria»)", ["Maria Keller"]),
        ("name = '«Alice Cooper'»", ["Alice Cooper"]),
        ("«Maria Keller={active»}", ["Maria Keller"]),
        ("«John Smith).Then» he left", ["John Smith", "Then"]),
        ("«a(b)|Emma Thompson»", ["Emma Thompson"]),
        ("«maria keller»", ["maria keller"]),
        (
            '«John F. Kennedy» and «Dwayne "The Rock" Johnson"».',
            ["John F. Kennedy", 'Dwayne "The Rock" Johnson'],
        ),
        ("def «add(a», b):", []),
        ("«NO_VALUE» and «docker run -it --name» x", []),
        ("from «jenkins import Jenkins»", []),
        ("import «Jenkins»", []),
        ("class «Maria» { }", []),
        ("const «Alice» = 3;", []),
        ("«Alice».greet();", []),
        ("«Model»(x=1)", []),
        ("rtol=«max»(rtol, 1), f([«np.nan», 1]), «ruff»>=0.5, [«CI»](https://x.org)", []),
        ("«Tree»(X, leaf_size=5)", []),
        ("name=«Keller» NAME=«KELLER» ask («maria»)", ["Keller", "KELLER", "maria"]),
        ("a=«O'Brien» b=«J.Keller» c=«JEAN-LUC»", ["O'Brien", "J.Keller", "JEAN-LUC"]),
        ("Can «Maria» build it? Upgrade «Emma», import «Tom».", ["Maria", "Emma", "Tom"]),
        ("Our new «Tom» (from HR) met class «Maria», the final «Emma»: 3", ["Tom", "Maria", "Emma"]),
        ("x = new «Tom»(3); class «Maria»(Base):\nlet «Emma»: Robot = y", []),
        ("The «Emma» server was rude, the «Tom» topic is closed", ["Emma", "Tom"]),
        ("Paid: «Emma» = 12 EUR\nNext: «Tom» | None\nself.x: «Robot» = y\n", ["Emma", "Tom"]),
        ("Yours: «Maria» =)\nx: «Db» = open()", ["Maria"]),
        ("«Maria»(5) and «Tom»(my boss) came", ["Maria", "Tom"]),
        ("call «Maria» tomorrow; it is late.", ["Maria"]),
        ("the «Jenkins» plugin", []),
        (
            "the «Jenkins» plugin that «Tom Jenkins» wrote; «Jenkins» left",
            ["Jenkins", "Tom Jenkins", "Jenkins"],
        ),
        ("the «Jenkins» build: «Jenkins»'s idea", ["Jenkins", "Jenkins"]),
        ("install «Jenkins», then restart «Jenkins»", []),
        ("Alice = Robot(); tell «Alice»", []),
        ('Alice = Robot("Alice"); tell «Alice»', ["Alice"]),
        ("# Keller() is by «Keller»", ["Keller"]),
    ],
)
def test_marks_are_cut_off_and_code_goes_through(marked: str, names: list[str]) -> None:
    assert kept(marked) == names


def test_spreading_keeps_every_place_and_touches_no_plain_text() -> None:
    assert spread('User("Emma Thompson")') == 'User, Emma Thompson")'
    assert spread("a={b}") == "a, b}"
    assert spread("x[12] <a@b.org>") == "x 12] <a@b.org>"
    plain = "Dear Ms. O'Brien (CEO), see http://x.org/a-b?c; 3:15 p.m."
    assert spread(plain) == plain


def found(analyser: PersonalDataAnalyser, texts: Iterable[str]) -> tuple[int, int]:
    """Persons found whole, and finds that are nobody's name."""
    num_found = num_wrong = 0
    for marked in texts:
        text, names = labelled(marked)
        (spans,) = analyser.analyse([text]).spans
        places = [(span.start, span.end) for span in spans if span.entity == "PERSON"]
        num_found += sum(any(start <= one and other <= end for start, end in places) for one, other in names)
        num_wrong += sum(all(end <= one or other <= start for one, other in names) for start, end in places)
    return num_found, num_wrong


PERSONS = {"prose": (38, 40), "marks": (21, 21), "persons in code": (23, 23)}
"""Of both halves: found, of how many. 67 in all before the marks of code were looked at."""
NOBODY = {"software": (22, 31), "code": (6, 20)}
"""Of both halves: finds now, and before."""


@pytest.mark.parametrize("kind", PERSONS)
def test_persons_are_found_whatever_marks_are_around(analyser: PersonalDataAnalyser, kind: str) -> None:
    num_found, _ = found(analyser, (*SEEN[kind], *UNSEEN[kind]))
    assert num_found >= PERSONS[kind][0]


@pytest.mark.parametrize("kind", NOBODY)
def test_code_is_seldom_taken_for_a_person(analyser: PersonalDataAnalyser, kind: str) -> None:
    _, num_wrong = found(analyser, (*SEEN[kind], *UNSEEN[kind]))
    assert num_wrong <= NOBODY[kind][0]


@pytest.mark.parametrize(
    "text",
    ["a" + "=" * 100_000, "a" + "=b" * 50_000, "a(" * 50_000, '("' * 50_000 + "a", "a" + " " * 100_000],
)
def test_no_row_of_marks_takes_long(text: str) -> None:
    """No place is looked at again for every mark behind it."""
    begun = time.process_time()
    assert len(spread(text)) == len(text)
    persons(text, [(0, len(text))])
    assert time.process_time() - begun < 1


def test_a_long_list_of_names_takes_no_longer_than_finding_them() -> None:
    """2,000 different names: 40 ms here."""
    names = [
        f"Maria{chr(97 + one % 26)}{chr(97 + one // 26 % 26)}{chr(97 + one // 676)}" for one in range(2000)
    ]
    text = "\n".join(names)
    places = [(at, at + len(names[0])) for at in range(0, len(text), len(names[0]) + 1)]
    begun = time.process_time()
    assert persons(text, places) == places
    assert time.process_time() - begun < 0.5
