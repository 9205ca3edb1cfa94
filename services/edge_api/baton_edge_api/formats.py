"""Which form the answer must have: response_format, structured_outputs and the older guided_*, all one thing.

Only what a schema is in JSON is judged here; what it says is the engine's to judge.
"""

from __future__ import annotations

from collections.abc import Iterator

from baton_contracts.openai_formats import JsonSchemaFormat, StructuredOutputs
from baton_contracts.openai_generation import GenerationRequest
from baton_contracts.prompt import StructuredOutput
from baton_edge_api.json_words import as_text, object_text
from baton_edge_api.refusals import bad_value, not_served


def structured_output(wire: GenerationRequest) -> StructuredOutput | None:
    """Raises RequestFailed: two forms are asked for, or one that can't be had."""
    found = list(_all_forms(wire))
    if len(found) > 1:
        raise bad_value(found[1].param, f"{found[0].param} already says what form the answer has.")
    return found[0] if found else None


def _all_forms(wire: GenerationRequest) -> Iterator[StructuredOutput]:
    asked = wire.response_format
    if isinstance(asked, JsonSchemaFormat):
        schema = as_text(asked.json_schema.schema_, "response_format.json_schema.schema")
        yield StructuredOutput(kind="json_schema", text=schema, param="response_format")
    elif asked is not None and asked.type == "json_object":
        yield StructuredOutput(kind="json_object", param="response_format")
    if wire.structured_outputs is not None:
        yield _of_structured_outputs(wire.structured_outputs)
    if wire.guided_json is not None:
        yield _schema(wire.guided_json, "guided_json")
    if wire.guided_regex is not None:
        yield StructuredOutput(kind="regex", text=wire.guided_regex, param="guided_regex")
    if wire.guided_choice is not None:
        yield StructuredOutput(kind="choice", choices=tuple(wire.guided_choice), param="guided_choice")
    if wire.guided_grammar is not None:
        yield StructuredOutput(kind="grammar", text=wire.guided_grammar, param="guided_grammar")


def _schema(given: dict[str, object] | str, param: str) -> StructuredOutput:
    text = object_text(given, param) if isinstance(given, str) else as_text(given, param)
    return StructuredOutput(kind="json_schema", text=text, param=param)


def _of_structured_outputs(asked: StructuredOutputs) -> StructuredOutput:
    for name in ("structural_tag", "whitespace_pattern", "disable_additional_properties"):
        if getattr(asked, name) not in (None, False):
            raise not_served(f"structured_outputs.{name}", "this is not served. Leave it out.")
    found: list[StructuredOutput] = []
    if asked.json_ is not None:
        found.append(_schema(asked.json_, "structured_outputs.json"))
    if asked.json_object:
        found.append(StructuredOutput(kind="json_object", param="structured_outputs.json_object"))
    if asked.regex is not None:
        found.append(StructuredOutput(kind="regex", text=asked.regex, param="structured_outputs.regex"))
    if asked.choice is not None:
        choices = tuple(asked.choice)
        found.append(StructuredOutput(kind="choice", choices=choices, param="structured_outputs.choice"))
    if asked.grammar is not None:
        found.append(StructuredOutput(kind="grammar", text=asked.grammar, param="structured_outputs.grammar"))
    if len(found) != 1:
        raise bad_value(
            "structured_outputs", "give exactly one of json, json_object, regex, choice, grammar."
        )
    return found[0]
