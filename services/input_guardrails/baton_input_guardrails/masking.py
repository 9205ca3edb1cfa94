"""Masking: spans of personal data become placeholders, the same value always the same one. Pure.

A `Masker` lives as long as one request. Placeholders look like `<PERSON_1>`. Names that occur in the prompt
already are never given out, so `restore(mask(text)) == text` whatever the text is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from baton_input_guardrails.personal_data import Span, without_overlaps

_SHORTEST_REPEAT = 3
"""Values shorter than this are not searched for where no recogniser found them."""


class Masker:
    def __init__(self, all_texts: Iterable[str]) -> None:
        """`all_texts` is everything the model will see, masked or not."""
        self._all_texts = [text for text in all_texts if "_" in text]
        self._last_number: dict[str, int] = {}
        self._by_value: dict[str, str] = {}
        self._entity_of: dict[str, str] = {}

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

    def _new_placeholder(self, entity: str) -> str:
        """Numbers go on behind the highest that stands in any text, even as a part of a longer word: masking
        what is around it could bare it."""
        if entity not in self._last_number:
            written = (re.findall(rf"{entity}_([0-9]{{1,9}})", text) for text in self._all_texts)
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

    def _repeats(self, text: str) -> Iterable[tuple[int, int]]:
        known = [value for value in self._by_value if len(value) >= _SHORTEST_REPEAT and value in text]
        if not known:
            return ()
        either = "|".join(re.escape(value) for value in sorted(known, key=len, reverse=True))
        return [match.span() for match in re.finditer(rf"(?<!\w)(?:{either})(?!\w)", text)]
