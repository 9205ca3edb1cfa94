"""The HTTP form of what clients of /v1/responses get back: a Response, its items, the events of a stream.

The edge builds them as plain JSON objects; these models are their description, in the OpenAPI document and
for tests. What clients send is in `openai_responses`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, RootModel

from baton_contracts.openai_answers import BatonExtras, TokenLogprob
from baton_contracts.openai_base import HttpModel, JsonObject

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class ResponseText(HttpModel):
    type: Literal["output_text"]
    text: str
    annotations: list[JsonObject]
    logprobs: list[TokenLogprob]


class ResponseReasoningText(HttpModel):
    type: Literal["reasoning_text"]
    text: str


class ResponseMessage(HttpModel):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[ResponseText]


class ResponseReasoning(HttpModel):
    id: str
    type: Literal["reasoning"]
    summary: list[JsonObject]
    content: list[ResponseReasoningText] = Field(description="What the model thought first.")
    status: ItemStatus


class ResponseCall(HttpModel):
    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str = Field(description="JSON text; cut where the answer was cut.")
    status: ItemStatus


OutputItem = Annotated[ResponseMessage | ResponseReasoning | ResponseCall, Field(discriminator="type")]


class InputTokensDetails(HttpModel):
    cached_tokens: int = Field(ge=0)
    cache_write_tokens: int = Field(ge=0)


class OutputTokensDetails(HttpModel):
    reasoning_tokens: int = Field(ge=0)


class ResponseUsage(HttpModel):
    input_tokens: int = Field(ge=0)
    input_tokens_details: InputTokensDetails
    output_tokens: int = Field(ge=0)
    output_tokens_details: OutputTokensDetails
    total_tokens: int = Field(ge=0)


class ResponseError(HttpModel):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class IncompleteDetails(HttpModel):
    reason: Literal["max_output_tokens", "content_filter"]


class ConversationName(HttpModel):
    id: str


class ResponseObject(HttpModel):
    id: str
    object: Literal["response"]
    created_at: int = Field(description="Unix time in seconds.")
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]
    background: bool
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    model: str = Field(description="The model that answered.")
    output: list[OutputItem]
    parallel_tool_calls: bool
    previous_response_id: str | None
    conversation: ConversationName | None
    prompt_cache_key: str | None
    prompt_cache_retention: str | None
    reasoning: JsonObject
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float | None = Field(description="Null: the model's own default.")
    text: JsonObject
    tool_choice: str | JsonObject
    tools: list[JsonObject]
    top_logprobs: int
    top_p: float | None = Field(description="Null: the model's own default.")
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None = Field(description="Null until the answer has come to its end.")
    user: str | None
    metadata: dict[str, str]
    baton: BatonExtras | None = None


class _Event(HttpModel):
    sequence_number: int = Field(ge=0)


class ResponseStateEvent(_Event):
    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: ResponseObject


class ResponseItemEvent(_Event):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: OutputItem


class ResponsePartEvent(_Event):
    type: Literal["response.content_part.added", "response.content_part.done"]
    item_id: str
    output_index: int
    content_index: int
    part: Annotated[ResponseText | ResponseReasoningText, Field(discriminator="type")]


class ResponseTextDelta(_Event):
    type: Literal["response.output_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str
    logprobs: list[TokenLogprob]


class ResponseTextDone(_Event):
    type: Literal["response.output_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str
    logprobs: list[TokenLogprob]


class ResponseReasoningDelta(_Event):
    type: Literal["response.reasoning_text.delta"]
    item_id: str
    output_index: int
    content_index: int
    delta: str


class ResponseReasoningDone(_Event):
    type: Literal["response.reasoning_text.done"]
    item_id: str
    output_index: int
    content_index: int
    text: str


class ResponseArgumentsDelta(_Event):
    type: Literal["response.function_call_arguments.delta"]
    item_id: str
    output_index: int
    delta: str


class ResponseArgumentsDone(_Event):
    type: Literal["response.function_call_arguments.done"]
    item_id: str
    output_index: int
    name: str
    arguments: str


class ResponseErrorEvent(_Event):
    """Why the stream breaks off; `response.failed` follows and is the last."""

    type: Literal["error"]
    code: str
    message: str
    param: str | None


_AnyEvent = Annotated[
    ResponseStateEvent
    | ResponseItemEvent
    | ResponsePartEvent
    | ResponseTextDelta
    | ResponseTextDone
    | ResponseReasoningDelta
    | ResponseReasoningDone
    | ResponseArgumentsDelta
    | ResponseArgumentsDone
    | ResponseErrorEvent,
    Field(discriminator="type"),
]


class ResponseEvent(RootModel[_AnyEvent]):
    """One event of a stream; its `event:` line repeats the type."""


class DeletedResponse(HttpModel):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputTokenCount(HttpModel):
    object: Literal["response.input_tokens"]
    input_tokens: int = Field(ge=0)


class InputItemList(HttpModel):
    """The items that were new in the response's own request."""

    object: Literal["list"]
    data: list[Any]
    first_id: str
    last_id: str
    has_more: bool
