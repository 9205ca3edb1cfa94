from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_output_guardrails.argument_filter import ArgumentFilter, Escaper, Unescaper
from baton_output_guardrails.deny import DenyRules, Phrase

RULES = DenyRules([Phrase("secret plan")])
VALUES = {"<PERSON_1>": 'Anne "Nan" O\'Neil\n\\', "<CITY_1>": "Zürich"}


def run(text: str, *cuts: int, values: dict[str, str] = VALUES) -> tuple[str, bool]:
    part = ArgumentFilter(values, RULES)
    places = [0, *cuts, len(text)]
    out = "".join(part.push(text[start:end]) for start, end in pairwise(places))
    return out + part.flush(), part.filter.blocked


@pytest.mark.parametrize("placeholder", ["<PERSON_1>", "\\u003cPERSON_1\\u003e", "PERSON_1"])
def test_a_value_is_restored_as_json(placeholder: str) -> None:
    text = f'{{"to": "{placeholder}", "city": "<CITY_1>"}}'
    out, _ = run(text)
    assert json.loads(out) == {"to": VALUES["<PERSON_1>"], "city": "Zürich"}
    for cut in range(len(text)):
        assert run(text, cut) == (out, False)


@pytest.mark.parametrize("written", ["secret plan", "secret\\nplan", "s\\u0065cret\\tplan", "SECRET  PLAN"])
def test_a_banned_phrase_is_found_however_it_is_escaped(written: str) -> None:
    out, blocked = run(f'{{"note": "the {written} is"}}')
    assert blocked
    assert out == '{"note": "the '


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('ab\\"\n😀', max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(st.text(max_size=3), _JSON, max_size=3),
    st.booleans(),
    st.lists(st.integers(0, 120), max_size=4),
)
def test_any_arguments_mean_the_same_behind_the_filter(
    arguments: dict[str, object], ascii_only: bool, cuts: list[int]
) -> None:
    text = json.dumps(arguments, ensure_ascii=ascii_only, indent=1)
    out, blocked = run(text, *sorted(min(cut, len(text)) for cut in cuts))
    assert not blocked
    assert json.loads(out) == arguments


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"a\nb\/", "a\nb/"),
        (r"\"\\", r"\"\\"),
        (r"\u0022\u005C", r"\"\\"),
        (r"\ud83d\ude00", "😀"),
        (r"\ud83d x", r"\ud83d x"),
        (r"\ud83d\u0041", r"\ud83dA"),
        (r"\ude00", r"\ude00"),
        (r"\u00", r"\u00"),
        (r"\uZZZZ", r"\uZZZZ"),
        ("\\", "\\"),
    ],
)
def test_escapes_come_off_in_every_split(text: str, plain: str) -> None:
    whole, single = Unescaper(), Unescaper()
    assert whole.push(text) + whole.flush() == plain
    assert "".join(map(single.push, text)) + single.flush() == plain


def test_escapes_come_back_in_strings_only() -> None:
    assert Escaper().push('{\n"a\n\\"": "\t"}\n') == '{\n"a\\n\\"": "\\t"}\n'
