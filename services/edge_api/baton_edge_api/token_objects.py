"""What is told of tokens, in OpenAI's and vLLM's forms: names, ids, logprobs of answer and prompt. Pure."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from itertools import chain
from typing import Any

from baton_contracts.frames import PromptPiece, RatedToken, SpelledToken, TokenLogprob


def token_name(token: RatedToken | SpelledToken, *, as_id: bool) -> str:
    """Its text; `bytes:\\xe2` where that is no whole character; `token_id:17` where ids are asked for."""
    if as_id and token.token_id is not None:
        return f"token_id:{token.token_id}"
    raw = bytes(token.token_bytes)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def chat_logprobs(entries: Sequence[TokenLogprob], *, as_ids: bool = False) -> dict[str, Any]:
    return {"content": rated_tokens(entries, as_ids=as_ids), "refusal": None}


def rated_tokens(entries: Sequence[TokenLogprob], *, as_ids: bool = False) -> list[dict[str, Any]]:
    return [
        _rated(entry, as_ids) | {"top_logprobs": [_rated(one, as_ids) for one in entry.top]}
        for entry in entries
    ]


def _rated(token: RatedToken, as_ids: bool) -> dict[str, Any]:
    name = token_name(token, as_id=True) if as_ids else token.text
    return {"token": name, "logprob": token.logprob, "bytes": token.token_bytes}


def prompt_token_ids(pieces: Sequence[PromptPiece]) -> list[int]:
    return [token.token_id for piece in pieces for token in piece.tokens]


def prompt_logprobs(pieces: Sequence[PromptPiece]) -> list[dict[str, Any] | None]:
    """As vLLM: for each token a map from ids, itself first; null for the first token."""
    entries = chain.from_iterable(piece.logprobs or () for piece in pieces)
    return [entry and _by_id(entry) for entry in entries]


def _by_id(entry: TokenLogprob) -> dict[str, Any]:
    ranks = {one.token_id: rank for rank, one in enumerate(entry.top, start=1)}
    ranked = ((entry, ranks.get(entry.token_id)), *((one, ranks[one.token_id]) for one in entry.top))
    return {
        str(one.token_id): {"logprob": one.logprob, "rank": rank, "decoded_token": one.text}
        for one, rank in ranked
    }


class CompletionTokens:
    """The four lists of a completion's logprobs, for tokens that come bit by bit. Offsets are in its text."""

    def __init__(self, *, num_top: int, as_ids: bool) -> None:
        self._num_top = num_top
        self._as_ids = as_ids
        self._offset = 0
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def of_prompt(self, pieces: Sequence[PromptPiece], text: str) -> dict[str, Any]:
        """Of an echoed prompt. Tokens that are not of its text (a BOS) take no place in it."""
        told = _Lists()
        for piece in pieces:
            scores = piece.logprobs or (None,) * len(piece.tokens)
            for token, score in zip(piece.tokens, scores, strict=True):
                told.add(token_name(token, as_id=self._as_ids), score, self._top(score), self._offset)
                shown = self._utf8.decode(bytes(token.token_bytes))
                self._offset += len(shown) if text.startswith(shown, self._offset) else 0
        self.echoed(text)
        return told.object(with_top=self._num_top > 0)

    def echoed(self, text: str) -> None:
        """The answer begins behind this text."""
        self._offset = len(text)
        self._utf8.reset()

    def of_answer(self, entries: Sequence[TokenLogprob]) -> dict[str, Any]:
        told = _Lists()
        for entry in entries:
            told.add(token_name(entry, as_id=self._as_ids), entry, self._top(entry), self._offset)
            self._offset += len(self._utf8.decode(bytes(entry.token_bytes)))
        return told.object(with_top=self._num_top > 0)

    def _top(self, entry: TokenLogprob | None) -> dict[str, float] | None:
        """The likeliest, and the token itself if it is none of them."""
        if entry is None or not self._num_top:
            return None
        return {
            token_name(one, as_id=self._as_ids): one.logprob for one in (*entry.top[: self._num_top], entry)
        }


class _Lists:
    def __init__(self) -> None:
        self._tokens: list[str] = []
        self._logprobs: list[float | None] = []
        self._tops: list[dict[str, float] | None] = []
        self._offsets: list[int] = []

    def add(self, name: str, entry: TokenLogprob | None, top: dict[str, float] | None, offset: int) -> None:
        self._tokens.append(name)
        self._logprobs.append(entry.logprob if entry else None)
        self._tops.append(top)
        self._offsets.append(offset)

    def object(self, *, with_top: bool) -> dict[str, Any]:
        return {
            "tokens": self._tokens,
            "token_logprobs": self._logprobs,
            "top_logprobs": self._tops if with_top else None,
            "text_offset": self._offsets,
        }


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The four lists of several parts, one behind the other."""
    first, *rest = parts
    whole = dict(first)
    for part in rest:
        for name, values in part.items():
            whole[name] = None if values is None else [*(whole[name] or ()), *values]
    return whole
