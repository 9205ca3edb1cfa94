"""Names in text: what is found is what spaCy's own network finds, whatever the text, in bounded memory."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import spacy

from baton_input_guardrails.entity_network import EntityNetwork
from baton_input_guardrails.named_entities import Name, NamedEntities, packaged_model

SENTENCES = (
    "My name is John Smith from the billing team.",
    "maria keller and dr. oliver stone will meet us on monday",
    "WHAT DID ANGELA MERKEL SAY TO BARACK OBAMA IN 2009?",
    "Ask Ngozi Okonjo-Iweala, José Álvarez, or Li Wei (her deputy).",
    "Siemens AG, based in Munich, bought Mentor Graphics for $4.5 billion on March 30, 2017.",
    "The French and the Germans met at the Hague; three of five voted 45% for it.",
    "def handle(request): return User(name='Alice', age=42)",
    "Traceback (most recent call last): File '/srv/app.py', line 12, in main",
    "  \n\n\tDear Mr. O'Brien,\n\nthank you for your letter of 3 May.\n\nYours,\nLucia van der Berg  \n",
    "从北京到上海要多久? Sag es bitte Frau Müller, ¿vale?",
    "-- Sebastian Andrzej Siewior <sebastian@breakpoint.cc>  Fri, 06 May 2022 22:21:52 +0200",
    "Why is my API returning a 503?",
    "Elizabeth",
    "New York City",
    "!!! ??? ... 12 34",
    "😀 Maria 😀 Keller 😀",
    "\u00a0\u00a0Paul\u00a0Newman\u00a0",
)
WORDS = """
    Maria Keller Johann Sebastian Bach van der de la Berlin Siemens Inc. March 2024 12 % $ the of and said met
    , . ( ) ' Mr. Dr. O'Brien engineer smith new york - -- code() x=1 http://a.b/c 3pm
"""


@pytest.fixture(scope="module")
def spacys_own() -> Any:
    """Without the components that nothing in the service asks for: a parser's sentences would bound names."""
    return spacy.load(packaged_model(), enable=["ner"])


@pytest.fixture(scope="module")
def names() -> NamedEntities:
    return NamedEntities()


def by_spacy(language: Any, text: str) -> list[Name]:
    return [Name(one.start_char, one.end_char, one.label_) for one in language(text).ents]


def word_soup(seed: int) -> str:
    chance = random.Random(seed)  # noqa: S311  # the same each time
    return " ".join(chance.choices([*WORDS.split(), "\n", "\t", ""], k=chance.randint(1, 60)))


@pytest.mark.parametrize("text", SENTENCES)
def test_it_finds_what_spacy_finds(names: NamedEntities, spacys_own: Any, text: str) -> None:
    assert names.find(text) == by_spacy(spacys_own, text)


def test_it_finds_what_spacy_finds_in_any_order_of_words(names: NamedEntities, spacys_own: Any) -> None:
    found = 0
    for seed in range(150):
        text = word_soup(seed)
        expected = by_spacy(spacys_own, text)
        assert names.find(text) == expected, text
        found += len(expected)
    assert found > 500


def test_known_names_and_no_text(names: NamedEntities) -> None:
    assert names.find("Maria Keller lives in Berlin.") == [Name(0, 12, "PERSON"), Name(22, 28, "GPE")]
    assert names.find("") == []
    assert names.find("   \n") == []


def test_words_are_not_kept_for_ever(names: NamedEntities) -> None:
    full = NamedEntities(kept_words=0)
    strings = full.words.language.vocab.strings
    before = len(strings)
    for seed in range(20):
        assert full.find(word_soup(seed)) == names.find(word_soup(seed))
    assert len(strings) == before
    names.find("Quarkelinchen")
    assert "Quarkelinchen" in names.words.language.vocab.strings


def test_threads_do_not_disturb_one_another(names: NamedEntities) -> None:
    full = NamedEntities(kept_words=0)
    texts = [word_soup(seed) for seed in range(60)]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(full.find, texts)) == [names.find(text) for text in texts]


def test_another_network_is_left_to_spacy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    language: Any = spacy.blank("en")
    language.add_pipe("ner").add_label("PERSON")  # without vectors, and a smaller network
    language.initialize()
    language.to_disk(tmp_path)
    other = NamedEntities(tmp_path)
    assert "left to spaCy" in caplog.text
    assert other.find("Maria Keller") == by_spacy(language, "Maria Keller")


def test_a_network_that_reads_more_than_the_word_is_not_ours(
    spacys_own: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    recogniser = spacys_own.get_pipe("ner")
    reader = next(node for node in recogniser.model.walk() if node.name == "extract_features")
    monkeypatch.setitem(reader.attrs, "columns", [*reader.attrs["columns"], "SPACY"])
    with pytest.raises(ValueError, match="another network"):
        EntityNetwork(recogniser)


def test_a_model_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="none"):
        NamedEntities(tmp_path / "none")
