"""The form of an answer in a chat completion request: OpenAI's response_format, vLLM's structured_outputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, Tag

from baton_contracts.openai_base import HttpModel, JsonObject, by_json_type, by_kind

SchemaOrText = Annotated[
    Annotated[JsonObject, Tag("«object»")] | Annotated[str, Field(min_length=1), Tag("«string»")],
    by_json_type("a JSON Schema: an object, or its text"),
]
Choices = Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=1, max_length=1024)]
Pattern = Annotated[str, Field(min_length=1)]


class TextFormat(HttpModel):
    type: Literal["text"]


class JsonObjectFormat(HttpModel):
    type: Literal["json_object"]


class NamedSchema(HttpModel):
    name: str = Field(max_length=64, pattern=r"^[a-zA-Z0-9_-]+$")
    description: str | None = None
    schema_: JsonObject = Field(alias="schema", description="JSON Schema.")
    strict: bool | None = Field(default=None, description="The answer fits the schema either way.")


class JsonSchemaFormat(HttpModel):
    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    Annotated[TextFormat, Tag("«text»")]
    | Annotated[JsonObjectFormat, Tag("«json_object»")]
    | Annotated[JsonSchemaFormat, Tag("«json_schema»")],
    by_kind("json_object", "json_schema", otherwise="text"),
]


class StructuredOutputs(HttpModel):
    """Exactly one of the first five. As in vLLM."""

    json_: SchemaOrText | None = Field(default=None, alias="json")
    json_object: bool | None = None
    regex: Pattern | None = None
    choice: Choices | None = None
    grammar: Pattern | None = None

    structural_tag: object = Field(default=None, description="Not served.")
    whitespace_pattern: object = Field(default=None, description="Not served.")
    disable_additional_properties: object = Field(default=None, description="Only false is served.")
    disable_any_whitespace: bool | None = Field(default=None, description="No effect.")
    disable_fallback: bool | None = Field(default=None, description="No effect.")
