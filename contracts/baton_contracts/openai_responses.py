"""The HTTP form of what clients send to /v1/responses.

Items are a union over their `type`; a message may leave its own out. What others serve and Baton doesn't is
told apart from what is wrong: the edge says which. What comes back is in `openai_response_objects`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import ConfigDict, Discriminator, Field, Tag

from baton_contracts.openai_base import HttpModel, JsonObject, at_most, by_json_type, by_kind, kind_of
from baton_contracts.openai_formats import JsonObjectFormat, TextFormat
from baton_contracts.openai_generation import Stop, StreamOptions
from baton_contracts.openai_requests import UNKNOWN_ROLE, Retrieval
from baton_contracts.openai_tools import CallId, FunctionName

_INT64 = 2**63

ItemId = Annotated[str, Field(min_length=1, max_length=128)]
Status = Literal["in_progress", "completed", "incomplete"]


class InputText(HttpModel):
    type: Literal["input_text"]
    text: str


class OutputText(HttpModel):
    """Of an earlier answer. Annotations and logprobs are not looked at."""

    type: Literal["output_text"]
    text: str


class Refusal(HttpModel):
    type: Literal["refusal"]
    refusal: str


_Part = Annotated[
    Annotated[InputText, Tag("«input_text»")]
    | Annotated[OutputText, Tag("«output_text»")]
    | Annotated[Refusal, Tag("«refusal»")],
    by_kind("output_text", "refusal", otherwise="input_text"),
]
_Parts = Annotated[list[_Part], Field(min_length=1, max_length=4096, fail_fast=True)]
_Content = Annotated[
    Annotated[str, Tag("«string»")] | Annotated[_Parts, Tag("«list»")],
    by_json_type("a string or a list of text parts"),
]
_Output = Annotated[
    Annotated[str, Tag("«string»")]
    | Annotated[Annotated[list[InputText], Field(min_length=1, fail_fast=True)], Tag("«list»")],
    by_json_type("a string or a list of input_text parts"),
]

ROLES = ("user", "assistant", "system", "developer")


class InputMessage(HttpModel):
    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: _Content
    id: ItemId | None = None
    status: Status | None = None


class InputCall(HttpModel):
    type: Literal["function_call"]
    call_id: CallId
    name: FunctionName
    arguments: str = Field(description="JSON text.")
    id: ItemId | None = None
    status: Status | None = None


class InputCallOutput(HttpModel):
    type: Literal["function_call_output"]
    call_id: CallId
    output: _Output
    id: ItemId | None = None
    status: Status | None = None


class SummaryText(HttpModel):
    type: Literal["summary_text"]
    text: str


class ReasoningText(HttpModel):
    type: Literal["reasoning_text"]
    text: str


class InputReasoning(HttpModel):
    """Earlier thinking: kept among the items, not shown to the model again."""

    type: Literal["reasoning"]
    id: ItemId | None = None
    summary: list[SummaryText] = Field(default_factory=list[SummaryText], max_length=1024)
    content: list[ReasoningText] | None = Field(default=None, max_length=1024)
    status: Status | None = None


class ItemReference(HttpModel):
    type: Literal["item_reference"] | None = None
    id: ItemId


_BY_TYPE = ("message", "function_call", "function_call_output", "reasoning", "item_reference")


def _item_tag(value: object) -> str | None:
    """What has no type is a message, or nothing but an item's id. What is of no known type is judged as a
    message, which then says so."""
    if not isinstance(value, dict):
        kind = kind_of(value)
        return f"«{kind}»" if kind in _BY_TYPE else "«message»"
    item = cast(dict[str, object], value)
    kind = item.get("type")
    if kind is None and "id" in item and "role" not in item and "content" not in item:
        return "«item_reference»"
    if kind in (None, "message"):
        role = item.get("role", "user")
        return "«message»" if isinstance(role, str) and role in ROLES else None
    return f"«{kind}»" if kind in _BY_TYPE else "«message»"


InputItem = Annotated[
    Annotated[InputMessage, Tag("«message»")]
    | Annotated[InputCall, Tag("«function_call»")]
    | Annotated[InputCallOutput, Tag("«function_call_output»")]
    | Annotated[InputReasoning, Tag("«reasoning»")]
    | Annotated[ItemReference, Tag("«item_reference»")],
    Discriminator(
        _item_tag,
        custom_error_type=UNKNOWN_ROLE,
        custom_error_message=f"must be one of {', '.join(ROLES)}",
    ),
]
_Items = Annotated[list[InputItem], Field(min_length=1, max_length=4096, fail_fast=True)]
Input = Annotated[
    Annotated[str, Tag("«string»")] | Annotated[_Items, Tag("«list»")],
    by_json_type("a string or a list of items"),
]


class ResponseFunctionTool(HttpModel):
    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: JsonObject | None = Field(default=None, description="JSON Schema. None: no parameters.")
    strict: bool | None = Field(default=None, description="Default: true.")


class NamedFunction(HttpModel):
    type: Literal["function"]
    name: FunctionName


class AllowedFunctions(HttpModel):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[NamedFunction] = Field(min_length=1, max_length=128)


_ChosenFunctions = Annotated[
    Annotated[NamedFunction, Tag("«function»")] | Annotated[AllowedFunctions, Tag("«allowed_tools»")],
    by_kind("allowed_tools", otherwise="function"),
]
ResponseToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("«string»")]
    | Annotated[_ChosenFunctions, Tag("«object»")],
    by_json_type('"none", "auto", "required" or an object that names a function'),
]


class ResponseSchemaFormat(HttpModel):
    type: Literal["json_schema"]
    name: str = Field(max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")
    description: str | None = None
    schema_: JsonObject = Field(alias="schema", description="JSON Schema.")
    strict: bool | None = Field(default=None, description="The answer fits the schema either way.")


ResponseTextFormat = Annotated[
    Annotated[TextFormat, Tag("«text»")]
    | Annotated[JsonObjectFormat, Tag("«json_object»")]
    | Annotated[ResponseSchemaFormat, Tag("«json_schema»")],
    by_kind("json_object", "json_schema", otherwise="text"),
]


class TextConfig(HttpModel):
    format: ResponseTextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = Field(default=None, description="No effect.")


class ReasoningConfig(HttpModel):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None, description="No effect: the thinking itself is given, not a summary."
    )
    generate_summary: Literal["auto", "concise", "detailed"] | None = Field(
        default=None, description="The older name of summary."
    )


class NamedConversation(HttpModel):
    id: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")


_ConversationId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
ConversationChoice = Annotated[
    Annotated[_ConversationId, Tag("«string»")] | Annotated[NamedConversation, Tag("«object»")],
    by_json_type("the id of a conversation, or an object with its id"),
]

LOGPROBS = "message.output_text.logprobs"
NOTHING_TO_INCLUDE = frozenset(
    {
        "reasoning.encrypted_content",
        "file_search_call.results",
        "web_search_call.results",
        "web_search_call.action.sources",
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "message.input_image.image_url",
    }
)
"""Of things that no answer here has. Clients ask for them whatever the model is: thinking that is not stored
here (`store: false`) is not hidden either, so it goes back as it came."""


class ResponseRequest(HttpModel):
    """POST /v1/responses. Unknown fields are kept aside: the edge says which it ignored."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False, frozen=True)

    model: str = Field(
        min_length=1, max_length=256, description="A served model, or an alias such as `auto`."
    )
    input: Input
    instructions: str | None = Field(default=None, description="Not carried over to the next response.")
    previous_response_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=128,
        description="A stored response: its items, and those before it, go before `input`.",
    )
    conversation: ConversationChoice | None = Field(
        default=None,
        description="A stored conversation: its history goes before `input`, this exchange is added to it. "
        "Not together with previous_response_id.",
    )
    store: bool | None = Field(default=None, description="Default: true.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[ResponseFunctionTool] | None = Field(default=None, max_length=128)
    tool_choice: ResponseToolChoice | None = Field(default=None, description="Default: auto.")
    parallel_tool_calls: bool | None = Field(default=None, description="False: one call at most.")
    max_tool_calls: int | None = Field(
        default=None, ge=1, lt=2**31, description="No effect: it counts calls of hosted tools."
    )
    text: TextConfig | None = None
    reasoning: ReasoningConfig | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0, le=20, description="Needs the include of logprobs.")
    max_output_tokens: int | None = Field(default=None, ge=1, lt=2**31)
    truncation: Literal["auto", "disabled"] | None = Field(
        default=None, description="auto: the oldest turns go until it fits. Default: disabled."
    )
    include: list[Annotated[str, Field(max_length=128)]] | None = Field(
        default=None, max_length=16, description=f"Served: `{LOGPROBS}`. The others have no effect."
    )
    metadata: Annotated[
        dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]] | None, at_most(16)
    ] = Field(default=None, max_length=16)
    background: bool | None = Field(
        default=None,
        description="True: its id comes at once, and it is made later. Needs store. With stream its events "
        "come now, and again from `GET /v1/responses/ID?stream=true&starting_after=N`.",
    )
    prompt: Any = Field(default=None, description="Not served.")

    seed: int | None = Field(default=None, ge=-_INT64, lt=_INT64, description="As in chat completions.")
    stop: Stop | None = Field(default=None, description="As in chat completions.")
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    top_k: int | None = Field(default=None, ge=-1, lt=2**31, description="As in vLLM.")
    min_p: float | None = Field(default=None, ge=0, le=1, description="As in vLLM.")
    repetition_penalty: float | None = Field(default=None, gt=0, le=10, description="As in vLLM.")
    chat_template_kwargs: JsonObject | None = Field(
        default=None, description="Variables for the model's chat template, as in vLLM."
    )
    priority: int | None = Field(default=None, ge=0, le=1000, description="Above 0: served after others.")
    cache_salt: str | None = Field(default=None, min_length=1, max_length=256)
    retrieval: Retrieval | None = Field(
        default=None, description="Whether documents are looked up for the answer. Default: auto."
    )

    user: str | None = Field(default=None, description="No effect.")
    safety_identifier: str | None = Field(default=None, description="No effect.")
    service_tier: Literal["auto", "default", "flex", "scale", "priority", "fast"] | None = Field(
        default=None, description="No effect."
    )
    prompt_cache_key: str | None = Field(default=None, description="No effect.")
    prompt_cache_retention: Literal["in_memory", "24h"] | None = Field(default=None, description="No effect.")
