"""The HTTP form of a completion: a prompt that goes on, without any chat template; and what comes back."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from baton_contracts.openai_answers import CompletionUsage, PromptLogprobs
from baton_contracts.openai_base import HttpModel
from baton_contracts.openai_generation import GenerationRequest, TokenId

MAX_PROMPTS = 128
_INNER = {str: "«strings»", int: "«token_ids»", list: "«lists»"}


def _prompt_tag(value: object) -> str | None:
    if isinstance(value, str):
        return "«string»"
    return _INNER.get(type(value[0])) if isinstance(value, list) and value else None


_Ids = Annotated[list[TokenId], Field(min_length=1, fail_fast=True)]
CompletionPrompt = Annotated[
    Annotated[str, Tag("«string»")]
    | Annotated[list[str], Field(max_length=MAX_PROMPTS), Tag("«strings»")]
    | Annotated[_Ids, Tag("«token_ids»")]
    | Annotated[list[_Ids], Field(max_length=MAX_PROMPTS, fail_fast=True), Tag("«lists»")],
    Discriminator(
        _prompt_tag,
        custom_error_type="invalid_type",
        custom_error_message="must be a string, token ids, or a list of one of them that is not empty",
    ),
]


class CompletionRequest(GenerationRequest):
    """POST /v1/completions. Choice i·n+j is the j-th answer to the i-th prompt."""

    prompt: CompletionPrompt
    max_tokens: int | None = Field(default=None, ge=0, lt=2**31, description="Default: 16.")
    logprobs: int | None = Field(
        default=None, ge=0, le=20, description="So many of the most likely tokens beside each one."
    )
    suffix: str | None = Field(default=None, description="Not served.")


class CompletionLogprobs(HttpModel):
    """Four lists of one length. A token that is no whole character is shown as `bytes:\\xe2`."""

    tokens: list[str]
    token_logprobs: list[float | None] = Field(description="Null for the first token of an echoed prompt.")
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int] = Field(description="Where each begins in the choice's text.")


class CompletionChoice(HttpModel):
    index: int = Field(ge=0)
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length", "content_filter"]
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_logprobs: PromptLogprobs | None = None


class Completion(HttpModel):
    id: str
    object: Literal["text_completion"]
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The model that answered.")
    system_fingerprint: str
    choices: list[CompletionChoice]
    usage: CompletionUsage


class CompletionChunkChoice(HttpModel):
    index: int = Field(ge=0)
    text: str
    logprobs: CompletionLogprobs | None = Field(description="Of the tokens whose text comes by here.")
    finish_reason: Literal["stop", "length", "content_filter"] | None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = Field(default=None, description="In a choice's first chunk.")


class CompletionChunk(HttpModel):
    """One event of a stream. The last one before `[DONE]` has no choices if usage was asked for."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[CompletionChunkChoice]
    usage: CompletionUsage | None = None
