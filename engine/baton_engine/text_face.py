"""What the core needs of text: the two protocols that `baton_engine.text` fulfils, and tests may replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from baton_engine.sampling_params import SamplingParams


class TextTokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str: ...

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> list[int]: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def special_token_ids(self) -> frozenset[int]: ...

    def token_bytes(self, token_id: int) -> bytes: ...


class TextChunk(Protocol):
    @property
    def text(self) -> str: ...

    @property
    def stopped(self) -> bool: ...

    @property
    def stop(self) -> str | None: ...


class TextDecoder(Protocol):
    """Holds back half characters and possible beginnings of stop strings."""

    def push(self, token_ids: Sequence[int]) -> TextChunk: ...

    def finish(self) -> TextChunk: ...


class TextDecoderFactory(Protocol):
    """A decoder for one answer, by the sampling's stop, min_tokens and ignore_eos."""

    def __call__(self, prompt_token_ids: Sequence[int], sampling: SamplingParams) -> TextDecoder: ...
