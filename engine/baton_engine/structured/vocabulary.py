"""A model's vocabulary as the mask library wants it. Owns which tokens can't be text of a structure: control
tokens, ids without a token, and the end tokens, which only ever end it.
"""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer, TokenizerWrapper

from baton_engine.text_face import TextTokenizer


class _Tokens:
    """The attributes and the call that `TokenizerWrapper` reads."""

    bos_token_id = None

    def __init__(self, tokenizer: TextTokenizer, vocab_size: int, end_token_ids: frozenset[int]) -> None:
        self.eos_token_id = min(end_token_ids)
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(vocab_size)]
        hidden = tokenizer.special_token_ids | end_token_ids
        self.special_token_ids = sorted(token_id for token_id in hidden if token_id < vocab_size)
        self._tokenizer = tokenizer

    def __call__(self, text: bytes | str) -> Sequence[int]:
        return self._tokenizer.encode(text if isinstance(text, str) else text.decode("utf-8", "replace"))


def mask_vocabulary(tokenizer: TextTokenizer, vocab_size: int, end_token_ids: frozenset[int]) -> LLTokenizer:
    """vocab_size is the width of the logits. Takes some 5 µs a token, once for each model."""
    tokens = TokenizerWrapper(_Tokens(tokenizer, vocab_size, end_token_ids))
    ids = sorted(end_token_ids)
    return LLTokenizer(tokens, n_vocab=vocab_size, eos_token=ids, slices=LLTokenizer.json_slices())
