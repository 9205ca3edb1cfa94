"""Real Presidio and real named entities: what is found, what is not, and how long a text may be."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_input_guardrails.personal_data import (
    AnalysisAbandoned,
    PersonalDataAnalyser,
    WordsAround,
    possible,
)


def found(analyser: PersonalDataAnalyser, text: str) -> set[tuple[str, str]]:
    (spans,) = analyser.analyse([text]).spans
    return {(text[span.start : span.end], span.entity) for span in spans}


@pytest.mark.parametrize(
    ("text", "value", "entity"),
    [
        ("My name is John Smith from the billing team.", "John Smith", "PERSON"),
        ("My name is Mary (Molly) Brown, call me", "Mary", "PERSON"),
        ("As shown by Peter Miller[12], this works.", "Peter Miller", "PERSON"),
        ("| name | town |\n| Mary Brown | Berlin |", "Mary Brown", "PERSON"),
        ("Write to maria.keller@gmail.com please.", "maria.keller@gmail.com", "EMAIL_ADDRESS"),
        ("Call me on +49 30 90182012 tomorrow.", "+49 30 90182012", "PHONE_NUMBER"),
        ("Ring (415) 555-2671 after six.", "(415) 555-2671", "PHONE_NUMBER"),
        ("Charge 4111 1111 1111 1111 for it.", "4111 1111 1111 1111", "CREDIT_CARD"),
        ("Pay to DE89370400440532013000 by Monday.", "DE89370400440532013000", "IBAN_CODE"),
        ("My SSN is 536-90-4399.", "536-90-4399", "US_SSN"),
        ("social security number 536904399", "536904399", "US_SSN"),
        ("IBAN: GB29 NWBK 6016 1331 9268 19", "GB29 NWBK 6016 1331 9268 19", "IBAN_CODE"),
        ("MT84MALT011000012345MTLCAST001S it is", "MT84MALT011000012345MTLCAST001S", "IBAN_CODE"),
        ("The server at 203.0.113.7 is slow.", "203.0.113.7", "IP_ADDRESS"),
        ("Use sk-baton-Zk3vX9qLm2Rt7WpYc5Nd8BhJ now", "sk-baton-Zk3vX9qLm2Rt7WpYc5Nd8BhJ", "API_KEY"),
        ("aws AKIAIOSFODNN7EXAMPLE it is", "AKIAIOSFODNN7EXAMPLE", "API_KEY"),
    ],
)
def test_found(analyser: PersonalDataAnalyser, text: str, value: str, entity: str) -> None:
    assert (value, entity) in found(analyser, text)


@pytest.mark.parametrize(
    "text",
    [
        "Why is my API returning a 503?",
        "The meeting in Berlin is on 3 May 2027 at Siemens.",
        "Version 2.13.0 of torch needs Python 3.11; error 404 means not found.",
        "What is the 4111 in the manual?",
        "Explain how paged attention works, please.",
        "std::vector<int> v; ns::f(); a[::2]",
        "curl http://127.0.0.1:8080 and bind to 0.0.0.0, or ::1",
        "def add(a, b):\n    return a",
        "def sums(rows: dict[str, int]) -> int: ...",
    ],
)
def test_harmless_text_has_none(analyser: PersonalDataAnalyser, text: str) -> None:
    assert found(analyser, text) == set()


def test_a_name_deep_in_a_long_text_is_found_at_its_place(analyser: PersonalDataAnalyser) -> None:
    text = "The depot was late again this week. " * 600 + "Ask Maria Keller about it."
    (spans,) = analyser.analyse([text]).spans
    assert "Maria Keller" in {text[span.start : span.end] for span in spans}


def test_the_two_parts_are_timed_apart(analyser: PersonalDataAnalyser) -> None:
    analysis = analyser.analyse(["I am John Smith.", ""])
    assert len(analysis.spans) == 2
    assert analysis.named_entities[0] <= analysis.named_entities[1] <= analysis.rules[0] <= analysis.rules[1]


def test_an_abandoned_analysis_stops(analyser: PersonalDataAnalyser) -> None:
    with pytest.raises(AnalysisAbandoned):
        analyser.analyse(["I am John Smith."], lambda: True)


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("Why is my API returning a 503?", ["PERSON"]),
        ("a@b.com", ["PERSON", "EMAIL_ADDRESS"]),
        ("Call 555-2671 or 99", ["PERSON", "PHONE_NUMBER"]),
        ("1.1.1.1", ["PERSON", "IP_ADDRESS"]),
        ("fe80::1", ["PERSON", "IP_ADDRESS"]),
        ("What is 1100 plus 7700?", ["PERSON"]),
        ("(030) 12 x 34", ["PERSON", "PHONE_NUMBER"]),
    ],
)
def test_what_can_not_be_there_is_not_looked_for(text: str, entities: list[str]) -> None:
    assert possible(["PERSON", "EMAIL_ADDRESS", "PHONE_NUMBER", "IP_ADDRESS"], text) == entities
    assert possible(["EMAIL_ADDRESS"], "none") == []


@pytest.mark.parametrize(
    "address",
    [
        *("10.20.30.40", "192.168.100.200/24", "::", "::1", "1::", "1:2:3:4:5:6:7:8", "a::b%eth0"),
        *("::ffff:10.0.0.1", "1:2:3:4:5:6:10.0.0.1", "2001:DB8::/32"),
    ],
)
def test_every_spelling_of_an_address_is_looked_for(address: str) -> None:
    assert possible(["IP_ADDRESS"], f"It is {address}, I think.") == ["IP_ADDRESS"]
    assert possible(["IP_ADDRESS"], "Release 2.13.0: at 10.30 it took 1.5.3 of 4.2; {a: 1, b: 2}") == []


def test_words_are_read_only_beside_a_find(
    analyser: PersonalDataAnalyser, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    lemmas = WordsAround.lemmas.func

    def spy(words: WordsAround) -> list[str]:
        read.append("lemmas")
        return lemmas(words)

    monkeypatch.setattr(WordsAround, "lemmas", property(spy))
    assert found(analyser, "twelve::thirteen, and 10:30:15") == set()
    assert read == []
    assert found(analyser, "social security number 536904399") == {("536904399", "US_SSN")}
    assert read


def test_own_patterns_and_allowed_values() -> None:
    own = PersonalDataAnalyser(
        ["PERSON", "BADGE"], patterns=[("BADGE", r"E-\d{6}")], allow=["william shakespeare"]
    )
    text = "Was William Shakespeare E-123456 or John Smith?"
    assert found(own, text) == {("E-123456", "BADGE"), ("John Smith", "PERSON")}


def test_without_names_no_model_is_needed(tmp_path: Path) -> None:
    rules_only = PersonalDataAnalyser(["EMAIL_ADDRESS", "API_KEY"], model_path=tmp_path / "none")
    assert found(rules_only, "John Smith, a@gmail.com") == {("a@gmail.com", "EMAIL_ADDRESS")}
    assert found(PersonalDataAnalyser(["API_KEY"]), "John Smith, a@gmail.com") == set()


def test_an_entity_that_nobody_knows_stops_the_start() -> None:
    with pytest.raises(ValueError, match="SHOE_SIZE"):
        PersonalDataAnalyser(["PERSON", "SHOE_SIZE"])
