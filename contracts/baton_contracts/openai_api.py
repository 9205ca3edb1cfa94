"""The HTTP form of a chat completion: what clients of the OpenAI API send to the edge and get back.

The relay itself never sees these models: the edge translates. Strict: a number in quotes is not a number.
What Baton does not serve yet is still described here, as far as its type goes; the edge refuses it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

_INT64 = 2**63
TAG_MARK = "«"
"""Begins the tags of unions, so that an error's path can be told apart from them."""

Text = str
Name = Annotated[str, Field(max_length=64, pattern=r"^[^\s<|\\/>]+$")]


class HttpModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


class TextPart(HttpModel):
    type: Literal["text"]
    text: Text


class RefusalPart(HttpModel):
    type: Literal["refusal"]
    refusal: Text


def _content_tag(value: object) -> str | None:
    if isinstance(value, str):
        return "«string»"
    return "«parts»" if isinstance(value, list) else None


def _part_tag(value: object) -> str:
    kind: object = getattr(value, "type", None)
    if isinstance(value, dict):
        kind = value.get("type")
    return "«refusal»" if kind == "refusal" else "«text»"


_CONTENT = Discriminator(
    _content_tag,
    custom_error_type="invalid_type",
    custom_error_message="must be a string or a list of text parts",
)
_TextParts = Annotated[list[TextPart], Field(min_length=1), Tag("«parts»")]
_AssistantPart = Annotated[
    Annotated[TextPart, Tag("«text»")] | Annotated[RefusalPart, Tag("«refusal»")], Discriminator(_part_tag)
]
_AssistantParts = Annotated[list[_AssistantPart], Field(min_length=1), Tag("«parts»")]
Content = Annotated[Annotated[str, Tag("«string»")] | _TextParts, _CONTENT]
AssistantContent = Annotated[Annotated[str, Tag("«string»")] | _AssistantParts, _CONTENT]


class SystemMessage(HttpModel):
    role: Literal["system"]
    content: Content
    name: Name | None = None


class DeveloperMessage(HttpModel):
    role: Literal["developer"]
    content: Content
    name: Name | None = None


class UserMessage(HttpModel):
    role: Literal["user"]
    content: Content
    name: Name | None = None


class AssistantMessage(HttpModel):
    role: Literal["assistant"]
    content: AssistantContent | None = None
    name: Name | None = None
    refusal: str | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None
    audio: Any = None


class ToolMessage(HttpModel):
    role: Literal["tool"]
    content: Content
    tool_call_id: str


_ROLES = ("system", "developer", "user", "assistant", "tool")


UNKNOWN_ROLE = "unknown_role"
"""Error type of a message whose role is none of these; the fault lies in its `role`."""


def _role_tag(value: object) -> str | None:
    """What is no object, or has no role, is judged as a user's message, which then says so."""
    if not isinstance(value, dict) or "role" not in value:
        return "«user»"
    role: object = value["role"]
    return f"«{role}»" if isinstance(role, str) and role in _ROLES else None


ChatMessage = Annotated[
    Annotated[SystemMessage, Tag("«system»")]
    | Annotated[DeveloperMessage, Tag("«developer»")]
    | Annotated[UserMessage, Tag("«user»")]
    | Annotated[AssistantMessage, Tag("«assistant»")]
    | Annotated[ToolMessage, Tag("«tool»")],
    Discriminator(
        _role_tag,
        custom_error_type=UNKNOWN_ROLE,
        custom_error_message=f"must be one of {', '.join(_ROLES)}",
    ),
]


def _list_or_string(value: object) -> str | None:
    if isinstance(value, str):
        return "«string»"
    return "«list»" if isinstance(value, list) else None


_StopString = Annotated[str, Field(min_length=1, max_length=1024)]
Stop = Annotated[
    Annotated[_StopString, Tag("«string»")]
    | Annotated[list[_StopString], Field(max_length=4), Tag("«list»")],
    Discriminator(
        _list_or_string,
        custom_error_type="invalid_type",
        custom_error_message="must be a string or a list of at most 4 strings",
    ),
]


def _retrieval_tag(value: object) -> str | None:
    if isinstance(value, bool):
        return "«boolean»"
    return "«string»" if isinstance(value, str) else None


Retrieval = Annotated[
    Annotated[bool, Tag("«boolean»")] | Annotated[Literal["auto", "on", "off"], Tag("«string»")],
    Discriminator(
        _retrieval_tag,
        custom_error_type="invalid_type",
        custom_error_message='must be true, false, "auto", "on" or "off"',
    ),
]


class StreamOptions(HttpModel):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ResponseFormat(HttpModel):
    type: Literal["text", "json_object", "json_schema"]


class ChatCompletionRequest(HttpModel):
    """POST /v1/chat/completions. Unknown fields are kept aside: the edge says which it ignored."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    model: str = Field(
        min_length=1, max_length=256, description="A served model, or an alias such as `auto`."
    )
    messages: list[ChatMessage] = Field(min_length=1, max_length=4096)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31, description="The older name of the next.")
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = Field(default=None, ge=-_INT64, lt=_INT64)
    stop: Stop | None = None
    n: int | None = Field(default=None, ge=1, le=128, description="Only 1 is served.")

    top_k: int | None = Field(default=None, ge=-1, lt=2**31, description="−1 or 0: off. As in vLLM.")
    min_p: float | None = Field(default=None, ge=0, le=1, description="As in vLLM.")
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31, description="As in vLLM.")
    stop_token_ids: list[Annotated[int, Field(ge=0, lt=2**31)]] | None = Field(
        default=None, max_length=64, description="As in vLLM."
    )
    ignore_eos: bool | None = Field(default=None, description="As in vLLM.")

    retrieval: Retrieval | None = Field(
        default=None, description="Whether documents are looked up for the answer. Default: auto."
    )
    conversation_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="A stored conversation: its history goes before the messages of this request.",
    )

    frequency_penalty: float | None = Field(default=None, ge=-2, le=2, description="Only 0 is served.")
    presence_penalty: float | None = Field(default=None, ge=-2, le=2, description="Only 0 is served.")
    logprobs: bool | None = Field(default=None, description="Only false is served.")
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="Needs logprobs.")
    logit_bias: dict[str, float] | None = Field(default=None, description="Only {} is served.")
    response_format: ResponseFormat | None = Field(default=None, description="Only text is served.")
    tools: list[Any] | None = Field(default=None, min_length=1, description="Not served yet.")

    store: bool | None = Field(default=None, description="No effect.")
    metadata: dict[str, str] | None = Field(default=None, description="No effect.")
    user: str | None = Field(default=None, description="No effect.")
    safety_identifier: str | None = Field(default=None, description="No effect.")
    service_tier: str | None = Field(default=None, description="No effect.")
    parallel_tool_calls: bool | None = Field(default=None, description="No effect.")
    reasoning_effort: str | None = Field(default=None, description="No effect.")
    verbosity: str | None = Field(default=None, description="No effect.")
    prompt_cache_key: str | None = Field(default=None, description="No effect.")


class PromptTokensDetails(HttpModel):
    cached_tokens: int = Field(ge=0)


class CompletionUsage(HttpModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(ge=0)
    total_tokens: int = Field(ge=0)
    prompt_tokens_details: PromptTokensDetails


class BatonExtras(HttpModel):
    """Only there when documents were used."""

    citations: list[str] = Field(description="Sources of [1], [2], … in order.")


WireFinishReason = Literal["stop", "length", "content_filter"]


class AnswerMessage(HttpModel):
    role: Literal["assistant"]
    content: str
    refusal: None
    baton: BatonExtras | None = None


class Choice(HttpModel):
    index: Literal[0]
    message: AnswerMessage
    logprobs: None
    finish_reason: WireFinishReason


class ChatCompletion(HttpModel):
    id: str
    object: Literal["chat.completion"]
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="The model that answered.")
    system_fingerprint: str
    choices: list[Choice]
    usage: CompletionUsage


class Delta(HttpModel):
    role: Literal["assistant"] | None = None
    content: str | None = None


class ChunkChoice(HttpModel):
    index: Literal[0]
    delta: Delta
    logprobs: None
    finish_reason: WireFinishReason | None


class ChatCompletionChunk(HttpModel):
    """One event of a stream. The last one before `[DONE]` has no choices if usage was asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str
    choices: list[ChunkChoice]
    usage: CompletionUsage | None = None
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


class ModelList(HttpModel):
    object: Literal["list"]
    data: list[ModelCard]


class DocumentRequest(HttpModel):
    """POST /v1/documents: one document; the same content again adds nothing."""

    source: str = Field(min_length=1, max_length=512, description="Its name, and its identity.")
    media_type: Literal["text/plain", "text/markdown", "text/html"] = "text/plain"
    text: str = Field(min_length=1)


class DocumentAnswer(HttpModel):
    object: Literal["document"]
    source: str
    chunks: int
    added: int
    removed: int
