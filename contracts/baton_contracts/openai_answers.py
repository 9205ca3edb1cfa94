"""The HTTP form of what clients of the OpenAI API get back from the edge.

The edge builds answers as plain JSON objects; these models are their description, in the OpenAPI document and
for tests. What clients send is in `openai_requests`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.openai_base import HttpModel


class PromptTokensDetails(HttpModel):
    cached_tokens: int = Field(ge=0)


class CompletionTokensDetails(HttpModel):
    reasoning_tokens: int = Field(ge=0)


class CompletionUsage(HttpModel):
    """Of all choices together."""

    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0)
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None = Field(
        default=None, description="Only there when the model thought first."
    )


class BatonExtras(HttpModel):
    """Only there when documents were used."""

    citations: list[str] = Field(description="Sources of [1], [2], … in order.")


WireFinishReason = Literal["stop", "length", "tool_calls", "content_filter", "function_call"]


class CallFunction(HttpModel):
    name: str
    arguments: str = Field(description="JSON text; cut where the answer was cut.")


class AnswerToolCall(HttpModel):
    id: str
    type: Literal["function"]
    function: CallFunction


class CallFunctionDelta(HttpModel):
    name: str | None = None
    arguments: str


class ToolCallDelta(HttpModel):
    """The first of a call has id, type and name; the others go on with its arguments."""

    index: int = Field(ge=0)
    id: str | None = None
    type: Literal["function"] | None = None
    function: CallFunctionDelta


class TopLogprob(HttpModel):
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(TopLogprob):
    top_logprobs: list[TopLogprob]


class ChoiceLogprobs(HttpModel):
    content: list[TokenLogprob]
    refusal: None


class PromptLogprob(HttpModel):
    logprob: float
    rank: int | None = Field(description="Null where it is not among the likeliest that were asked for.")
    decoded_token: str


PromptLogprobs = list[dict[str, PromptLogprob] | None]
"""For each token of the prompt: the token itself first, then the likeliest, by id."""


class AnswerMessage(HttpModel):
    role: Literal["assistant"]
    content: str | None = Field(description="Null if the answer is nothing but tool calls.")
    refusal: None
    reasoning: str | None = Field(default=None, description="What the model thought first.")
    reasoning_content: str | None = Field(default=None, description="The same, under its other name.")
    tool_calls: list[AnswerToolCall] | None = None
    function_call: CallFunction | None = Field(default=None, description="For a request with functions.")
    baton: BatonExtras | None = None


class Choice(HttpModel):
    index: int = Field(ge=0)
    message: AnswerMessage
    logprobs: ChoiceLogprobs | None
    finish_reason: WireFinishReason
    token_ids: list[int] | None = Field(default=None, description="With return_token_ids.")


class ChatCompletion(HttpModel):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The model that answered.")
    system_fingerprint: str
    choices: list[Choice]
    usage: CompletionUsage
    prompt_token_ids: list[int] | None = Field(default=None, description="With return_token_ids.")
    prompt_logprobs: PromptLogprobs | None = Field(default=None, description="With prompt_logprobs.")


class Delta(HttpModel):
    role: Literal["assistant"] | None = None
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallDelta] | None = None
    function_call: CallFunctionDelta | None = Field(default=None, description="For a request with functions.")


class ChunkChoice(HttpModel):
    index: int = Field(ge=0)
    delta: Delta
    logprobs: ChoiceLogprobs | None = Field(description="Of the tokens whose text comes by here.")
    finish_reason: WireFinishReason | None
    token_ids: list[int] | None = Field(default=None, description="With return_token_ids.")


class ChatCompletionChunk(HttpModel):
    """One event of a stream. The last one before `[DONE]` has no choices if usage was asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | None = None
    prompt_token_ids: list[int] | None = Field(default=None, description="With return_token_ids, once.")
    baton: BatonExtras | None = None


class ErrorObject(HttpModel):
    message: str
    type: str
    param: str | None
    code: str | None


class ErrorAnswer(HttpModel):
    """Every answer that is not 2xx, and the `data:` of an error event in a stream."""

    error: ErrorObject


class ModelCard(HttpModel):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int | None = None
    task: Literal["embed"] | None = Field(default=None, description="Only there for a model of embeddings.")


class ModelList(HttpModel):
    object: Literal["list"]
    data: list[ModelCard]


class DocumentAnswer(HttpModel):
    object: Literal["document"]
    source: str
    chunks: int
    added: int
    removed: int
