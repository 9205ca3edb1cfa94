"""The HTTP form of what clients of the OpenAI API send to the edge.

The relay itself never sees these models: the edge translates. Strict: a number in quotes is not a number.
What Baton does not serve yet is still described here, as far as its type goes; the edge refuses it.
What they get back is in `openai_answers`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag

from baton_contracts.openai_base import HttpModel, JsonObject, by_json_type
from baton_contracts.openai_formats import (
    Choices,
    Pattern,
    ResponseFormat,
    SchemaOrText,
    StructuredOutputs,
)
from baton_contracts.openai_tools import AskedToolCall, CallId, FunctionTool, ToolChoice

_INT64 = 2**63

Text = str
Name = Annotated[str, Field(max_length=64, pattern=r"^[^\s<|\\/>]+$")]


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
    tool_calls: list[AskedToolCall] | None = Field(default=None, max_length=128)
    function_call: Any = Field(default=None, description="Not served: use tool_calls.")
    audio: Any = None


class ToolMessage(HttpModel):
    role: Literal["tool"]
    content: Content
    tool_call_id: CallId


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


_TokenId = Annotated[int, Field(ge=0, lt=2**31)]
_StopString = Annotated[str, Field(min_length=1, max_length=1024)]
Stop = Annotated[
    Annotated[_StopString, Tag("«string»")]
    | Annotated[list[_StopString], Field(max_length=4), Tag("«list»")],
    by_json_type("a string or a list of at most 4 strings"),
]


Retrieval = Annotated[
    Annotated[bool, Tag("«boolean»")] | Annotated[Literal["auto", "on", "off"], Tag("«string»")],
    by_json_type('true, false, "auto", "on" or "off"'),
]


class StreamOptions(HttpModel):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


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
    n: int | None = Field(default=None, ge=1, le=128, description="The engine has its own bound.")
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(
        default=None, max_length=1024, description="Token id → number added to its logit."
    )
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="Needs logprobs.")

    tools: list[FunctionTool] | None = Field(default=None, min_length=1, max_length=128)
    tool_choice: ToolChoice | None = Field(default=None, description="Default: auto.")
    parallel_tool_calls: bool | None = Field(default=None, description="False: one call at most.")
    response_format: ResponseFormat | None = None

    top_k: int | None = Field(default=None, ge=-1, lt=2**31, description="−1 or 0: off. As in vLLM.")
    min_p: float | None = Field(default=None, ge=0, le=1, description="As in vLLM.")
    min_tokens: int | None = Field(default=None, ge=0, lt=2**31, description="As in vLLM.")
    stop_token_ids: list[_TokenId] | None = Field(default=None, max_length=64, description="As in vLLM.")
    ignore_eos: bool | None = Field(default=None, description="As in vLLM.")
    include_stop_str_in_output: bool | None = Field(default=None, description="As in vLLM.")
    skip_special_tokens: bool | None = Field(default=None, description="As in vLLM.")
    repetition_penalty: float | None = Field(default=None, gt=0, le=10, description="As in vLLM.")
    bad_words: list[Annotated[str, Field(min_length=1, max_length=256)]] | None = Field(
        default=None, max_length=1024, description="As in vLLM."
    )
    allowed_token_ids: list[_TokenId] | None = Field(
        default=None, min_length=1, max_length=8192, description="As in vLLM."
    )
    truncate_prompt_tokens: int | None = Field(default=None, ge=-1, lt=2**31, description="As in vLLM.")
    chat_template_kwargs: JsonObject | None = Field(
        default=None, description="Variables for the model's chat template, as in vLLM."
    )
    priority: int | None = Field(
        default=None, ge=0, le=1000, description="Above 0: served after others. Waiting makes up for it."
    )
    cache_salt: str | None = Field(
        default=None,
        min_length=1,
        max_length=256,
        description="Cached work is shared only with requests of the same key's tenant and salt.",
    )
    structured_outputs: StructuredOutputs | None = Field(default=None, description="As in vLLM.")
    guided_json: SchemaOrText | None = Field(default=None, description="Older: structured_outputs.json.")
    guided_regex: Pattern | None = Field(default=None, description="Older: structured_outputs.regex.")
    guided_choice: Choices | None = Field(default=None, description="Older: structured_outputs.choice.")
    guided_grammar: Pattern | None = Field(default=None, description="Older: structured_outputs.grammar.")

    retrieval: Retrieval | None = Field(
        default=None, description="Whether documents are looked up for the answer. Default: auto."
    )
    conversation_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="A stored conversation: its history goes before the messages of this request.",
    )

    store: bool | None = Field(default=None, description="No effect.")
    metadata: dict[str, str] | None = Field(default=None, description="No effect.")
    user: str | None = Field(default=None, description="No effect.")
    safety_identifier: str | None = Field(default=None, description="No effect.")
    service_tier: str | None = Field(default=None, description="No effect.")
    reasoning_effort: str | None = Field(default=None, description="No effect.")
    verbosity: str | None = Field(default=None, description="No effect.")
    prompt_cache_key: str | None = Field(default=None, description="No effect.")


class DocumentRequest(HttpModel):
    """POST /v1/documents: one document; the same content again adds nothing."""

    source: str = Field(min_length=1, max_length=512, description="Its name, and its identity.")
    media_type: Literal["text/plain", "text/markdown", "text/html"] = "text/plain"
    text: str = Field(min_length=1)
