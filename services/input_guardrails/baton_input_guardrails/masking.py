"""Masking: spans of personal data become placeholders, the same value always the same one. Pure.

A `Masker` lives as long as one request. Placeholders look like `<PERSON_1>`. Names that occur in the prompt
already are never given out, so `restore(mask(text)) == text` whatever the text is.
"""

from __future__ import annotations

import re
from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from baton_input_guardrails.personal_data import Span, without_overlaps

_SHORTEST_REPEAT = 3
"""Values shorter than this are not searched for where no recogniser found them."""
_PLACES = re.compile(rf"(?s)(?<!\w)(?=(.{{{_SHORTEST_REPEAT}}}))")
"""Where a value may begin, with its first characters."""


class Masker:
    def __init__(self, all_texts: Iterable[str]) -> None:
        """`all_texts` is everything the model will see, masked or not."""
        self._all_texts = [text for text in all_texts if "_" in text]
        self._last_number: dict[str, int] = {}
        self._by_value: dict[str, str] = {}
        self._entity_of: dict[str, str] = {}
        self._lengths: dict[str, list[int]] = {}
        """Of the values that begin with these characters, longest first."""

    @property
    def values(self) -> dict[str, str]:
        """Placeholder → original, for the vault."""
        return {placeholder: value for value, placeholder in self._by_value.items()}

    @property
    def counts(self) -> dict[str, int]:
        """Entity → different values masked."""
        return dict(Counter(self._entity_of.values()))

    def learn(self, text: str, spans: Iterable[Span]) -> None:
        """Gives each value its placeholder. All texts are learned before the first is masked."""
        for span in spans:
            value = text[span.start : span.end]
            if value not in self._by_value:
                self._by_value[value] = self._new_placeholder(span.entity)
                self._entity_of[value] = span.entity
                lengths = self._lengths.setdefault(value[:_SHORTEST_REPEAT], [])
                if len(value) >= _SHORTEST_REPEAT and len(value) not in lengths:
                    insort(lengths, len(value), key=lambda length: -length)

    def _new_placeholder(self, entity: str) -> str:
        """Numbers go on behind the highest that stands in any text, even as a part of a longer word: masking
        what is around it could bare it. In any case: the answer's are restored so."""
        if entity not in self._last_number:
            written = (re.findall(rf"(?i){entity}_([0-9]{{1,9}})", text) for text in self._all_texts)
            self._last_number[entity] = max((int(number) for found in written for number in found), default=0)
        self._last_number[entity] += 1
        return f"<{entity}_{self._last_number[entity]}>"

    def mask(self, text: str, spans: Sequence[Span]) -> str:
        """Also where a known value stands and the recogniser missed it this time."""
        again = [Span(start, end, "", 0.0) for start, end in self._repeats(text)]
        pieces: list[str] = []
        seen = 0
        for span in without_overlaps([*spans, *again]):
            pieces += [text[seen : span.start], self._by_value[text[span.start : span.end]]]
            seen = span.end
        return "".join(pieces) + text[seen:]

    def _repeats(self, text: str) -> Iterator[tuple[int, int]]:
        """Known values as whole words, the longest at each place. Linear, however many they are."""
        free_from = 0
        for place in _PLACES.finditer(text):
            start = place.start()
            for length in self._lengths.get(place[1], ()) if start >= free_from else ():
                end = start + length
                if text[start:end] in self._by_value and not _is_word(text[end : end + 1]):
                    free_from = end
                    yield start, end
                    break


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"
