"""Personal data found in text: names, by `named_entities.py`, and Presidio's and our own rules.

Owns which recognisers there are and what counts as a find. Texts in, spans out, nothing kept. Not for the
event loop: an analysis may take milliseconds. Names and rules are timed apart.
"""

from __future__ import annotations

import re
import time
from bisect import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import re2
import spacy
import tldextract
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry, RecognizerResult
from presidio_analyzer.nlp_engine import NerModelConfiguration, NlpArtifacts, NlpEngine, SpacyNlpEngine
from presidio_analyzer.predefined_recognizers import (
    CreditCardRecognizer,
    EmailRecognizer,
    IbanRecognizer,
    IpRecognizer,
    PhoneRecognizer,
    UsSsnRecognizer,
)

from baton_input_guardrails.code_words import persons, spread
from baton_input_guardrails.named_entities import NamedEntities, Words

_NAMED_ENTITIES = {"PERSON", "LOCATION", "ORGANIZATION", "NRP"}
_NAME_SCORE = 0.85
"""The model gives none of its own; this is Presidio's."""
_FEWEST_DIGITS = 6
"""Of a telephone number; cards, accounts and the like have more."""
_DIGITS_IN_A_ROW = re.compile(rf"(?:\d[\W_xX\u30fc]*){{{_FEWEST_DIGITS}}}")
"""With no letters between them but the x and the long-vowel mark that telephone numbers may have."""
_BEGINNING_OF_IBAN = re.compile(r"[A-Za-z]{2}\d{2}")
_PART_OF_ADDRESS = re.compile(r"\d\.\d{1,3}\.\d{1,3}\.\d|:[0-9A-Fa-f]{0,4}:")
"""What every address of the Internet has in it, in one of its spellings."""
_PIECE_CHARS = 8000
"""Longer texts are analysed in pieces, so that a lost request can stop between two."""

API_KEY_PATTERNS = (
    r"\bsk-[A-Za-z0-9][A-Za-z0-9_-]{18,}\b",
    r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{30,}\b",
    r"\bgithub_pat_[A-Za-z0-9_]{30,}\b",
    r"\bglpat-[A-Za-z0-9_-]{18,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bAIza[0-9A-Za-z_-]{35}",
    r"\bxox[abpors]-[A-Za-z0-9-]{10,}",
    r"\bhf_[A-Za-z0-9]{30,}\b",
    r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"-----BEGIN [A-Z ]{0,20}PRIVATE KEY-----[A-Za-z0-9+/=\s]+(?:-----END [A-Z ]{0,20}PRIVATE KEY-----)?",
)


class Span(NamedTuple):
    start: int
    end: int
    entity: str
    score: float


@dataclass(frozen=True)
class Analysis:
    """Spans of each text, in order, and when the two parts ran (Unix seconds)."""

    spans: tuple[tuple[Span, ...], ...]
    named_entities: tuple[float, float]
    rules: tuple[float, float]


class AnalysisAbandoned(Exception):
    """Nobody waits for this analysis any more."""


class OwnPatterns:
    """Recognisers of our own on RE2: API keys, and those of the rules file."""

    def __init__(self, patterns: Iterable[tuple[str, str]]) -> None:
        """Pairs of entity and pattern."""
        self._patterns = [(entity, re2.compile(pattern)) for entity, pattern in patterns]

    def find(self, text: str) -> list[Span]:
        return [
            Span(match.start(), match.end(), entity, 1.0)
            for entity, pattern in self._patterns
            for match in pattern.finditer(text)
            if match.end() > match.start()
        ]


class WordsAround(NlpArtifacts):
    """What Presidio wants to know of a text's words, worked out only when it looks: when a rule has found
    something, and a word such as "ssn" beside it makes that surer. The words stand for their lemmas."""

    def __init__(self, language: Any, text: str, nlp_engine: NlpEngine) -> None:
        self._language = language
        self._text = text
        self.nlp_engine = nlp_engine
        self.entities, self.scores = [], []

    @cached_property
    def tokens(self) -> Any:
        return self._language.make_doc(self._text)

    @cached_property
    def tokens_indices(self) -> list[int]:
        return [token.idx for token in self.tokens]

    @cached_property
    def lemmas(self) -> list[str]:
        return [token.lower_ for token in self.tokens]

    @cached_property
    def keywords(self) -> list[str]:
        return self.set_keywords(self.nlp_engine, self.lemmas, "en")


class PersonalDataAnalyser:
    def __init__(
        self,
        entities: Sequence[str],
        *,
        score: float = 0.35,
        patterns: Sequence[tuple[str, str]] = (),
        allow: Iterable[str] = (),
        model_path: Path | None = None,
    ) -> None:
        """Loads the model: seconds. Raises OSError if it isn't there."""
        # Without this the e-mail recogniser asks the network for the list of top-level domains.
        tldextract.extract = tldextract.TLDExtract(suffix_list_urls=(), cache_dir=None)  # pyright: ignore[reportAttributeAccessIssue]
        self._allowed = {value.casefold() for value in allow}
        wanted = set(entities)
        keys = [("API_KEY", pattern) for pattern in API_KEY_PATTERNS] if "API_KEY" in wanted else []
        self._own = OwnPatterns([*keys, *patterns])
        self._entities = sorted(wanted - {"API_KEY"} - {entity for entity, _ in patterns})
        recognisers = [
            EmailRecognizer(),
            PhoneRecognizer(),
            CreditCardRecognizer(),
            IbanRecognizer(),
            UsSsnRecognizer(),
            IpRecognizer(),
        ]
        by_rule = {name for one in recognisers for name in one.supported_entities}
        unknown = set(self._entities) - by_rule - _NAMED_ENTITIES
        if unknown:
            raise ValueError(f"no recogniser knows {', '.join(sorted(unknown))}")
        named = wanted & _NAMED_ENTITIES if score <= _NAME_SCORE else set[str]()
        self._by_rule = [entity for entity in self._entities if entity in by_rule]
        self._names = NamedEntities(model_path) if named else None
        self._named = {label: entity for label, entity in _presidios_names().items() if entity in named}
        self._words = self._names.words if self._names else Words(spacy.blank("en"))
        self._nlp_engine = SpacyNlpEngine()
        self._nlp_engine.nlp = {"en": self._words.language}
        self._engine = AnalyzerEngine(
            registry=RecognizerRegistry(recognizers=recognisers, supported_languages=["en"]),
            nlp_engine=self._nlp_engine,
            supported_languages=["en"],
            default_score_threshold=score,
        )

    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        """Raises AnalysisAbandoned soon after `abandoned()` turns true."""
        pieces = [(index, start, piece) for index, text in enumerate(texts) for start, piece in cut(text)]
        spans: list[list[Span]] = [[] for _ in texts]

        def search(find: Callable[[str], Iterable[Span]]) -> float:
            for index, start, piece in pieces:
                if abandoned():
                    raise AnalysisAbandoned
                spans[index] += [
                    Span(one.start + start, one.end + start, one.entity, one.score)
                    for one in find(piece)
                    if self._is_private(one.entity, piece[one.start : one.end])
                ]
            return time.time()

        begun = time.time()
        read = search(self._find_names)
        search(self._find_by_rule)
        disjoint = tuple(
            tuple(without_overlaps([*found, *self._own.find(text)]))
            for text, found in zip(texts, spans, strict=True)
        )
        return Analysis(disjoint, (begun, read), (read, time.time()))

    def _find_names(self, text: str) -> Iterable[Span]:
        if not self._names:
            return ()
        found: dict[str, list[tuple[int, int]]] = {}
        for name in self._names.find(spread(text)):
            if entity := self._named.get(name.label):
                found.setdefault(entity, []).append((name.start, name.end))
        if "PERSON" in found:
            found["PERSON"] = persons(text, found["PERSON"])
        return [
            Span(start, end, entity, _NAME_SCORE) for entity, places in found.items() for start, end in places
        ]

    def _find_by_rule(self, text: str) -> Iterable[Span]:
        entities = possible(self._by_rule, text)
        if not entities:
            return ()
        with self._words.reading() as language:
            words = WordsAround(language, text, self._nlp_engine)
            found: list[RecognizerResult] = self._engine.analyze(
                text, "en", entities=entities, nlp_artifacts=words
            )
        return [Span(one.start, one.end, one.entity_type, one.score) for one in found]

    def _is_private(self, entity: str, value: str) -> bool:
        """False for what is allowed, and for addresses of no one."""
        if value.casefold() in self._allowed:
            return False
        return entity != "IP_ADDRESS" or _is_somebodys_address(value)


def _presidios_names() -> dict[str, str]:
    """What models call names → what Presidio calls them."""
    return dict(NerModelConfiguration().model_to_presidio_entity_mapping or {})


def possible(entities: Sequence[str], text: str) -> list[str]:
    """Those that could be in `text` at all: most questions have neither an @ nor six digits in a row."""
    digits = sum(map(str.isdigit, text))
    ruled_out: set[str] = set()
    if digits < _FEWEST_DIGITS or not _DIGITS_IN_A_ROW.search(text):
        ruled_out |= {"PHONE_NUMBER", "CREDIT_CARD", "US_SSN"}
    if digits < _FEWEST_DIGITS or not _BEGINNING_OF_IBAN.search(text):
        ruled_out.add("IBAN_CODE")
    if "@" not in text:
        ruled_out.add("EMAIL_ADDRESS")
    if not _PART_OF_ADDRESS.search(text):
        ruled_out.add("IP_ADDRESS")
    return [entity for entity in entities if entity not in ruled_out]


def _is_somebodys_address(value: str) -> bool:
    """Not loopback, not `0.0.0.0`, not a Python slice such as `[::2]`."""
    if value.count(":") == 2 and value.startswith("::"):
        return False
    try:
        address = ip_address(value.partition("/")[0].partition("%")[0])
    except ValueError:
        return True
    return not (address.is_loopback or address.is_unspecified)


def cut(text: str) -> list[tuple[int, str]]:
    """Pieces and where they start: at line ends or blanks where there are any."""
    pieces: list[tuple[int, str]] = []
    start = 0
    while len(text) - start > _PIECE_CHARS:
        end = start + _PIECE_CHARS
        for mark in ("\n", ". ", " "):
            place = text.rfind(mark, start + _PIECE_CHARS // 2, end)
            if place >= 0:
                end = place + len(mark)
                break
        pieces.append((start, text[start:end]))
        start = end
    if text[start:].strip():
        pieces.append((start, text[start:]))
    return pieces


def without_overlaps(spans: Iterable[Span]) -> list[Span]:
    """The surest (then longest) of those that overlap, in order of place."""
    chosen: list[Span] = []
    for span in sorted(spans, key=lambda one: (-one.score, one.start - one.end, one.start)):
        place = bisect(chosen, span)
        before_ends = chosen[place - 1].end if place else 0
        after_starts = chosen[place].start if place < len(chosen) else span.end
        if before_ends <= span.start < span.end <= after_starts:
            chosen.insert(place, span)
    return chosen
