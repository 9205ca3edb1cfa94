"""Encodes text in which protected tokens must stay text.

Owns which added tokens are protected and the encoder that never produces them. Control tokens always
are, and so is markup that carries meaning: what the chat template writes, and what parsers of tool calls
and of thoughts look for. Other added tokens, such as runs of spaces or HTML tags in some vocabularies, are
ordinary spelling, and recognised everywhere as the library does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

from tokenizers import AddedToken
from tokenizers import Tokenizer as HFTokenizer

from baton_engine.errors import RequestRejected

_PARSED_MARKUP: Final = frozenset(
    {"<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"}
)


def protected_tokens(
    added: Mapping[int, AddedToken], template_sources: Iterable[str]
) -> dict[int, AddedToken]:
    """Those of the `added` tokens that a user's text must not become."""
    written = "\0".join(template_sources)
    return {
        token_id: token
        for token_id, token in added.items()
        if token.special or token.content in _PARSED_MARKUP or token.content in written
    }


class PlainTextEncoder:
    """Encodes as `tokenizer` does, as if the `protected` tokens did not exist. Shares its model."""

    def __init__(self, tokenizer: HFTokenizer, protected: Mapping[int, AddedToken]) -> None:
        self._ids = frozenset(protected)
        self._pattern = any_of(token.content for token in protected.values())
        added = tokenizer.get_added_tokens_decoder()
        others = {token_id: token for token_id, token in added.items() if token_id not in protected}
        self._first, self._true_ids = _rebuilt(tokenizer, others, _pre_tokenizer(tokenizer))
        later = _pre_tokenizer(tokenizer, prefix_first_only=False)
        self._later = self._first if later is None else _rebuilt(tokenizer, others, later)[0]

    def encode(self, text: str, *, at_start: bool = True) -> list[int]:
        """Ids of `text`; at_start: nothing comes before it, so SentencePiece puts its space in front.

        Raises RequestRejected if the vocabulary can't spell the text without a protected token.
        """
        ids = self._encode(text, at_start)
        if self._ids.isdisjoint(ids):
            return ids
        # Vocabularies that look whole words up before merging can find a token by its text: cut it apart.
        cuts = [0, *(match.start() + 1 for match in self._pattern.finditer(text)), len(text)]
        pieces = [self._encode(text[start:end], at_start and start == 0) for start, end in pairwise(cuts)]
        ids = [token_id for piece in pieces for token_id in piece]
        if self._ids.isdisjoint(ids):
            return ids
        raise RequestRejected(
            "unspellable_text",
            None,
            "The text holds a control token that this vocabulary can't spell as text.",
        )

    def _encode(self, text: str, at_start: bool) -> list[int]:
        tokenizer = self._first if at_start else self._later
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return [self._true_ids.get(token_id, token_id) for token_id in ids] if self._true_ids else ids


def any_of(texts: Iterable[str], *, prefix: str = "", suffix: str = "") -> re.Pattern[str]:
    """Matches any of `texts`, the longest first, between two patterns; nothing at all if there are none."""
    longest_first = sorted((text for text in texts if text), key=len, reverse=True)
    choice = "|".join(map(re.escape, longest_first)) or r"(?!)"
    return re.compile(f"{prefix}(?:{choice}){suffix}")


def _rebuilt(
    tokenizer: HFTokenizer, added: Mapping[int, AddedToken], pre_tokenizer: Any
) -> tuple[HFTokenizer, dict[int, int]]:
    """A tokenizer with only these added tokens, and a map from its ids for them to the true ones."""
    plain = HFTokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        plain.normalizer = tokenizer.normalizer
    if pre_tokenizer is not None:
        plain.pre_tokenizer = pre_tokenizer
    plain.add_tokens(list(added.values()))
    given = {plain.token_to_id(token.content): token_id for token_id, token in added.items()}
    return plain, {ours: true for ours, true in given.items() if ours is not None and ours != true}


def _pre_tokenizer(tokenizer: HFTokenizer, prefix_first_only: bool = True) -> Any:
    """As it is; or without the space in front of a text's start; None if that makes no difference."""
    if prefix_first_only or tokenizer.pre_tokenizer is None:
        return tokenizer.pre_tokenizer if prefix_first_only else None
    state = tokenizer.pre_tokenizer.__getstate__()
    text = state.decode() if isinstance(state, bytes) else str(state)
    without = text.replace('"prepend_scheme":"first"', '"prepend_scheme":"never"')
    if without == text:
        return None
    shell = {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return HFTokenizer.from_str(json.dumps(shell | {"pre_tokenizer": json.loads(without)})).pre_tokenizer
