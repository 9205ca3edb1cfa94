"""The filter of one answer: whatever the cuts, the same text; nothing banned; nothing harmless lost."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from baton_output_guardrails.deny import DenyRules, Phrase
from baton_output_guardrails.stream_filter import StreamFilter

PHRASES = ("secret plan", "kill", "a b c", "b")
VALUES = {"<PERSON_1>": "Mary O'Neil", "<PERSON_12>": 'Jo "JJ" <Ng>', "<EMAIL_ADDRESS_1>": "mary@gmail.com"}
NONE = DenyRules()

PIECES = (
    *(
        "secret",
        "plan",
        "kill",
        "s",
        "skill",
        " ",
        "\n",
        "\u200b",
        "a",
        "b",
        "c",
        ".",
        "_",
        "SECRET",
        "<",
        "é",
    ),
    *("PERSON_1", "<PERSON_1>", "<PERSON_12>", "<EMAIL_", "ADDRESS_1>", "sk-baton-", "x9" * 11),
)
pieces_of_text = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)


def run(text: str, cuts: list[int], values: dict[str, str], rules: DenyRules) -> tuple[str, bool]:
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    stream = StreamFilter(values, rules)
    out = "".join(stream.push(text[start:end]) for start, end in pairwise(borders))
    return out + stream.flush(), stream.blocked


def read(text: str) -> str:
    """As a person reads: no zero-width characters, no case."""
    return text.replace("\u200b", "").casefold().replace("é", "e")


def banned_in(text: str) -> bool:
    either = "|".join(phrase.replace(" ", "\\s+") for phrase in PHRASES)
    return bool(re.search(f"(?<![a-z0-9])(?:{either})(?![a-z0-9])|sk-baton-[a-z0-9_-]{{20}}", read(text)))


def whole_words_of(out: str, text: str) -> str:
    """A secret inside a word cuts the word: its first letters alone are not the word that they spell."""
    goes_on = read(text[len(out) :])[:1].isalnum()
    return re.sub(r"[a-z0-9]*$", "", read(out)) if goes_on else out


@settings(deadline=None)
@given(pieces_of_text, st.lists(st.integers(0, 120)), st.lists(st.integers(0, 120)))
def test_any_split_gives_the_same_text_and_nothing_banned(
    text: str, cuts: list[int], others: list[int]
) -> None:
    rules = DenyRules([Phrase(phrase) for phrase in PHRASES])
    out, blocked = run(text, cuts, {}, rules)
    assert (out, blocked) == run(text, others, {}, rules)
    assert blocked == banned_in(text)
    assert text.startswith(out)
    assert not banned_in(whole_words_of(out, text))
    if not blocked:
        assert out == text


@settings(deadline=None)
@given(pieces_of_text, st.lists(st.integers(0, 120)))
@example("<<PERSON_1>", [1, 2, 9])
@example("PERSON_1", [3])
@example("PERSON_12", [8])
def test_placeholders_come_back_at_any_split(text: str, cuts: list[int]) -> None:
    rules = DenyRules(secrets=())
    whole, _ = run(text, [], VALUES, rules)
    assert run(text, cuts, VALUES, rules) == (whole, False)
    expected = re.sub(
        r"<(PERSON_12|PERSON_1|EMAIL_ADDRESS_1)>|(?<!\w)(PERSON_12|PERSON_1|EMAIL_ADDRESS_1)(?!\w)",
        lambda found: VALUES[f"<{found[1] or found[2]}>"],
        text,
    )
    assert whole == expected


@pytest.mark.parametrize("spelled", ["<PERSON_12>", "PERSON_12", "Person_12", "<Person_12>"])
def test_a_placeholder_is_known_as_a_small_model_spells_it(spelled: str) -> None:
    for cut in range(len(spelled) + 1):
        assert run(f'{{"name": "{spelled}"}}', [10 + cut], {"<PERSON_12>": "Ng"}, NONE)[0] == '{"name": "Ng"}'


def test_names_that_a_model_chooses_in_code_are_left_alone() -> None:
    code = "person_1 = Person_11 + APERSON_1 + Email_Address_1"
    assert run(code, [], VALUES, NONE)[0] == code.replace("Email_Address_1", "mary@gmail.com")


def test_text_without_rules_and_values_is_not_held_back() -> None:
    stream = StreamFilter({}, DenyRules(secrets=()))
    pieces = ["It", " works", " (503", ")."]
    assert [stream.push(piece) for piece in pieces] == pieces


def test_only_what_may_begin_something_is_held_back() -> None:
    stream = StreamFilter(VALUES, DenyRules([Phrase("secret plan")]))
    assert stream.push("The sec") == "The "
    assert stream.push("retary said <PER") == "secretary said "
    assert stream.push("SON_2> hello") == "<PERSON_2> hello"
    assert stream.held_chars_max == len("<PER")


@pytest.mark.parametrize(
    "spelled",
    [
        "secret plan",
        "SECRET\n\tPlan",
        "s\u200be\u00adcret \u2060plan",
        "ѕесrеt рlаn",
        "ｓｅｃｒｅｔ　ｐｌａｎ",
        "sécret plan",
        "se\u0301cret plan",
    ],
)
def test_a_phrase_is_found_however_it_is_spelled(spelled: str) -> None:
    rules = DenyRules([Phrase("Secret plan")])
    for cut in range(len(spelled) + 5):
        assert run(f"The {spelled}.", [cut], {}, rules) == ("The ", True)


@pytest.mark.parametrize("harmless", ["skill", "killer", "secretplan", "secret-plan", "the secret. Plan B2"])
def test_whole_words_only(harmless: str) -> None:
    assert run(harmless, [2, 5], {}, DenyRules([Phrase("kill"), Phrase("secret plan")])) == (harmless, False)


def test_inside_words_where_the_rule_says_so() -> None:
    assert run("unbombable", [4], {}, DenyRules([Phrase("bomb", whole_words=False)])) == ("un", True)


def test_scripts_without_blanks_need_no_word_borders() -> None:
    assert run("我的秘密计划是", [3], {}, DenyRules([Phrase("秘密计划")])) == ("我的", True)


KEY = "sk-baton-Zk3vX9qLm2Rt7WpYc5Nd8BhJ4sGf6TaE1uQoVxMz0iA"


@pytest.mark.parametrize(
    "secret",
    [
        KEY,
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\n\nMIIEpAIBAAKCAQEA7 bq2p3k4j5",
    ],
)
def test_the_systems_own_secrets_stay_inside(secret: str) -> None:
    for cut in range(0, len(secret), 3):
        assert run(f"The key is {secret} and more", [cut, cut + 7], {}, NONE) == ("The key is ", True)


@pytest.mark.parametrize(
    "talk",
    ["Keys begin with sk-baton-, then 43 characters.", "-----BEGIN PRIVATE KEY-----\n...\n", "sk-baton-dev"],
)
def test_talk_about_secrets_is_harmless(talk: str) -> None:
    assert run(talk, [3, 12, 20], {}, NONE) == (talk, False)


def test_a_value_of_the_users_own_is_given_back_even_if_a_rule_knows_it() -> None:
    values = {"<API_KEY_1>": KEY, "<PERSON_1>": "Kill Bill"}
    text = "You sent <API_KEY_1>, <PERSON_1>."
    assert run(text, [12], values, DenyRules([Phrase("kill")])) == (f"You sent {KEY}, Kill Bill.", False)


def test_a_phrase_made_of_a_value_and_the_models_words_is_banned() -> None:
    assert run(
        "Note: <PERSON_1> is guilty!", [9], {"<PERSON_1>": "Ann"}, DenyRules([Phrase("ann is guilty")])
    ) == (
        "Note: ",
        True,
    )


def test_values_are_not_read_as_placeholders() -> None:
    assert run("<PERSON_1>", [4], {"<PERSON_1>": "<PERSON_2>", "<PERSON_2>": "x"}, NONE) == (
        "<PERSON_2>",
        False,
    )


def test_monitor_mode_lets_pass_and_counts() -> None:
    stream = StreamFilter({}, DenyRules([Phrase("secret plan")]), monitor=True)
    assert stream.push("the secret") + stream.push(" plan, the secret plan") + stream.flush() == (
        "the secret plan, the secret plan"
    )
    assert stream.hits == ("phrase", "phrase")
    assert not stream.blocked


def test_nothing_comes_out_after_a_block() -> None:
    stream = StreamFilter({}, DenyRules([Phrase("kill")]))
    assert stream.push("so kill, and more") == "so "
    assert stream.push("even more") + stream.flush() == ""


def test_a_phrase_without_letters_is_refused() -> None:
    with pytest.raises(ValueError, match="phrase 1"):
        DenyRules([Phrase("\u200b ")], secrets=())


def test_many_values_cost_little_and_each_comes_back() -> None:
    values = {f"<EMAIL_ADDRESS_{number}>": f"a{number}@b.example" for number in range(1, 20_001)}
    stream = StreamFilter(values, DenyRules(secrets=()))
    begun = time.process_time()
    out = stream.push("<EMAIL_ADDRESS_7> EMAIL_ADDRESS_20000 EMAIL_ADDRESS_20001 EMAIL_ADDRESS_1999")
    assert out == "a7@b.example a20000@b.example EMAIL_ADDRESS_20001 "
    assert out + stream.push("9") + stream.flush() == f"{out}a19999@b.example"
    assert time.process_time() - begun < 1
