"""G4: restore(mask(text)) equals the text. Generated texts through the real analyser; a thousand generated spans
are in tests/unit/input_guardrails/test_masking.py."""
# ruff: noqa: E501, S311  # a list of words; chance that repeats itself is what a test wants

from __future__ import annotations

import random

import pytest

from baton_input_guardrails.config import InputConfig
from baton_input_guardrails.masking import Masker
from baton_input_guardrails.personal_data import PersonalDataAnalyser
from baton_output_guardrails.deny import DenyRules
from baton_output_guardrails.stream_filter import StreamFilter

WORDS = (
    *("Hello", "I am", "John Smith", "and", "Maria Keller", "wrote to", "jo.o'neil+x@gmail.com", "call", "\n", "  "),
    *("+49 30 90182012", "4111 1111 1111 1111", "DE89370400440532013000", "203.0.113.7", "<PERSON_1>", "PERSON_2", "<", ">"),
    *("sk-baton-Zk3vX9qLm2Rt7WpYc5Nd8BhJ", "the card", "“quoted”", "🙂", "é", "{\"name\": \"Ann Lee\"}", "<EMAIL_ADDRESS_1>"),
)  # fmt: skip


@pytest.fixture(scope="module")
def analyser() -> PersonalDataAnalyser:
    return PersonalDataAnalyser(InputConfig().personal_data.entities)


def test_what_was_masked_comes_back(analyser: PersonalDataAnalyser) -> None:
    chance = random.Random(4)
    texts = [chance.choice(("", " ")).join(chance.choices(WORDS, k=chance.randint(1, 9))) for _ in range(250)]
    num_masked = 0
    for text, spans in zip(texts, analyser.analyse(texts).spans, strict=True):
        masker = Masker([text])
        masker.learn(text, spans)
        masked = masker.mask(text, spans)
        num_masked += masked != text
        stream = StreamFilter(masker.values, DenyRules(secrets=()))
        middle = chance.randint(0, len(masked))
        assert stream.push(masked[:middle]) + stream.push(masked[middle:]) + stream.flush() == text
    assert num_masked > 125
