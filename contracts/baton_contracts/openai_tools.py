"""Tools in a chat completion request: what the model may call, what it must, and what it has called."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from baton_contracts.openai_base import HttpModel, JsonObject, by_json_type, by_kind

FunctionName = Annotated[str, Field(max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")]
CallId = Annotated[str, Field(min_length=1, max_length=128)]


class FunctionDefinition(HttpModel):
    name: FunctionName
    description: str | None = None
    parameters: JsonObject | None = Field(default=None, description="JSON Schema. None: no parameters.")
    strict: bool | None = Field(default=None, description="True: arguments of free calls fit too.")


class FunctionTool(HttpModel):
    type: Literal["function"]
    function: FunctionDefinition


class ChosenFunction(HttpModel):
    name: FunctionName


class NamedTool(HttpModel):
    type: Literal["function"]
    function: ChosenFunction


class AllowedTools(HttpModel):
    mode: Literal["auto", "required"]
    tools: list[NamedTool] = Field(min_length=1, max_length=128)


class AllowedToolsChoice(HttpModel):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


_Words = Literal["none", "auto", "required"]
_ChosenTools = Annotated[
    Annotated[NamedTool, Tag("«function»")] | Annotated[AllowedToolsChoice, Tag("«allowed_tools»")],
    by_kind("allowed_tools", otherwise="function"),
]
ToolChoice = Annotated[
    Annotated[_Words, Tag("«string»")] | Annotated[_ChosenTools, Tag("«object»")],
    by_json_type('"none", "auto", "required" or an object that names a function'),
]


OldFunctionChoice = Annotated[
    Annotated[Literal["none", "auto"], Tag("«string»")] | Annotated[ChosenFunction, Tag("«object»")],
    by_json_type('"none", "auto" or an object that names a function'),
]


class CalledFunction(HttpModel):
    name: FunctionName
    arguments: str = Field(description="JSON text.")


class AskedToolCall(HttpModel):
    """A call in an assistant's message that the client sends back."""

    id: CallId
    type: Literal["function"]
    function: CalledFunction
