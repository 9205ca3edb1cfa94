"""The HTTP form of what clients of the OpenAI API send to the edge.

The relay itself never sees these models: the edge translates. Strict: a number in quotes is not a number.
What Baton does not serve yet is still described here, as far as its type goes; the edge refuses it.
What they get back is in `openai_answers`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from baton_contracts.openai_base import HttpModel, JsonObject, at_most, by_json_type, by_kind
from baton_contracts.openai_generation import GenerationRequest
from baton_contracts.openai_tools import (
    AskedToolCall,
    CalledFunction,
    CallId,
    FunctionDefinition,
    FunctionName,
    FunctionTool,
    OldFunctionChoice,
    ToolChoice,
)

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


_CONTENT = Discriminator(
    _content_tag,
    custom_error_type="invalid_type",
    custom_error_message="must be a string or a list of text parts",
)
_TextParts = Annotated[list[TextPart], Field(min_length=1, fail_fast=True), Tag("«parts»")]
_AssistantPart = Annotated[
    Annotated[TextPart, Tag("«text»")] | Annotated[RefusalPart, Tag("«refusal»")],
    by_kind("refusal", otherwise="text"),
]
_AssistantParts = Annotated[list[_AssistantPart], Field(min_length=1, fail_fast=True), Tag("«parts»")]
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
    function_call: CalledFunction | None = Field(default=None, description="The older form of a tool call.")
    audio: Any = None


class ToolMessage(HttpModel):
    role: Literal["tool"]
    content: Content
    tool_call_id: CallId


class FunctionMessage(HttpModel):
    """The older form of a tool's message: the result of the call before it."""

    role: Literal["function"]
    content: str | None
    name: FunctionName


_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


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
    | Annotated[ToolMessage, Tag("«tool»")]
    | Annotated[FunctionMessage, Tag("«function»")],
    Discriminator(
        _role_tag,
        custom_error_type=UNKNOWN_ROLE,
        custom_error_message=f"must be one of {', '.join(_ROLES)}",
    ),
]


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]
Retrieval = Annotated[
    Annotated[bool, Tag("«boolean»")] | Annotated[Literal["auto", "on", "off"], Tag("«string»")],
    by_json_type('true, false, "auto", "on" or "off"'),
]


class ChatCompletionRequest(GenerationRequest):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage] = Field(min_length=1, max_length=4096, fail_fast=True)
    max_tokens: int | None = Field(default=None, ge=1, lt=2**31, description="The older name of the next.")
    max_completion_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="Needs logprobs.")
    tools: list[FunctionTool] | None = Field(default=None, min_length=1, max_length=128)
    tool_choice: ToolChoice | None = Field(default=None, description="Default: auto.")
    parallel_tool_calls: bool | None = Field(default=None, description="False: one call at most.")
    chat_template_kwargs: JsonObject | None = Field(
        default=None, description="Variables for the model's chat template, as in vLLM."
    )
    retrieval: Retrieval | None = Field(
        default=None, description="Whether documents are looked up for the answer. Default: auto."
    )
    conversation_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]{1,64}$",
        description="A stored conversation: its history goes before the messages of this request.",
    )
    store: bool | None = Field(default=None, description="No effect.")
    metadata: Annotated[dict[str, str] | None, at_most(1024)] = Field(default=None, description="No effect.")
    safety_identifier: str | None = Field(default=None, description="No effect.")
    service_tier: str | None = Field(default=None, description="No effect.")
    reasoning_effort: Effort | None = Field(
        default=None,
        description="none, minimal, low: no thinking; others: thinking. For models that can choose.",
    )
    verbosity: str | None = Field(default=None, description="No effect.")
    prompt_cache_key: str | None = Field(default=None, description="No effect.")
    functions: list[FunctionDefinition] | None = Field(
        default=None, min_length=1, max_length=128, description="The older form of tools."
    )
    function_call: OldFunctionChoice | None = Field(
        default=None, description="The older form of tool_choice."
    )
    include_reasoning: bool | None = Field(
        default=None, description="False: what the model thought is not told. As in vLLM."
    )
    add_generation_prompt: bool | None = Field(
        default=None, description="False: no answer is opened behind the messages. As in vLLM."
    )
    continue_final_message: bool | None = Field(
        default=None, description="The last message, an assistant's, goes on. As in vLLM."
    )


class DocumentRequest(HttpModel):
    """POST /v1/documents: one document; the same content again adds nothing."""

    source: str = Field(min_length=1, max_length=512, description="Its name, and its identity.")
    media_type: Literal["text/plain", "text/markdown", "text/html"] = "text/plain"
    text: str = Field(min_length=1)
