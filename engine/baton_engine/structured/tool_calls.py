"""The structure of an answer that must consist of tool calls, in the form in which its model writes them.

Owns how the three forms look from outside: `text/tool_calls/` reads what is made here. Arguments fit the
schema of their function, whether or not it was called strict; at its top they hold nothing that it doesn't
name, unless it says itself that more is allowed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from baton_engine.errors import InvalidParameter
from baton_engine.output_format import ToolCallFormat
from baton_engine.structured.grammar_text import quoted, structure_part
from baton_engine.structured.json_rules import enforceable
from baton_engine.structured.output import (
    MAX_SCHEMA_DEPTH,
    StructuredOutput,
    UnusableStructure,
    is_deeper_than,
)

MAX_CALLS: Final = 16
"""Of one answer: a weak model could call for ever."""
ANY_OBJECT: Final = {"type": "object", "additionalProperties": True}
_SAYS_WHAT_MORE: Final = frozenset(
    {"additionalProperties", "unevaluatedProperties", "propertyNames", "$ref", "allOf", "anyOf", "oneOf"}
)


def constraint(
    tools: Sequence[Mapping[str, Any]],
    choice: str | None,
    call_format: ToolCallFormat,
    *,
    parallel: bool = True,
    otherwise: StructuredOutput | None = None,
    after: str = "",
    param: str = "tools",
) -> StructuredOutput:
    """Tools are functions as in the OpenAI API: name and parameters (JSON schema: parsed, text, or none).

    choice: the one function to be called; None: any. parallel False: exactly one call.
    otherwise: the answer may be this instead of calls, and nothing else.
    Raises InvalidParameter: naming `param` for a function that can't be called in this form, naming that of
    `otherwise` where JSON could not be told from a call.
    """
    wanted = [tool for tool in tools if choice in (None, tool["name"])]
    if call_format == "llama3_json" and otherwise is not None and otherwise.kind == "json_schema":
        raise otherwise.refusal("this model's calls are JSON too; with tools, force them or forbid them.")
    if not wanted:
        raise InvalidParameter(param, f"{param} can't be used: the function to be called is not there.")
    start = "start: calls" if otherwise is None else "start: calls | @otherwise"
    frame = [start, _calls(call_format, MAX_CALLS if parallel else 1)]
    more = [] if otherwise is None else [structure_part(otherwise) | {"name": "otherwise"}]
    return _structure(frame, wanted, call_format, param, after, more)


def calls_in_text(
    tools: Sequence[Mapping[str, Any]],
    call_format: ToolCallFormat,
    *,
    ease: bool = False,
    after: str = "",
    param: str = "tools",
) -> StructuredOutput:
    """For tools that may be called: free text, but what begins like a call is one of an offered function, and
    its arguments fit that function's schema.

    A tool without `strict` whose schema can't be used may have any object for arguments; with `ease` all of
    those may. Llama's and Python's forms stand at the beginning of an answer or nowhere, and nothing else may
    begin with their first character (but, without a strict tool, JSON beside Llama's). Calls that a small
    model puts into a fence are text here: nothing holds them.
    after: free text, up to and with this mark, in which nothing is a call.
    Raises InvalidParameter as `constraint` does, of strict tools alone.
    """
    held = [tool if _is_held(tool, call_format, ease) else _eased(tool) for tool in tools]
    if call_format == "hermes":
        frame = [
            "start: (before body)* TEXT",
            'before[suffix="<tool_call>"]: /(.|\\n)*/',
            'body: "\\n" call "\\n</tool_call>"',
            "TEXT: /(.|\\n)*/ & ~/(.|\\n)*<tool_call>(.|\\n)*/",
        ]
    else:
        text = _text_beside(held, call_format)
        frame = ["start: (calls | TEXT)?", _calls(call_format, MAX_CALLS), f"TEXT: {text}"]
    return _structure(frame, held, call_format, param, after)


def _is_held(tool: Mapping[str, Any], call_format: ToolCallFormat, ease: bool) -> bool:
    if tool.get("strict"):
        return True
    try:
        _Function(tool, 0, call_format)
    except UnusableStructure:
        return False
    return not ease


def _eased(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    return dict(tool) | {"parameters": ANY_OBJECT}


def _text_beside(tools: Sequence[Mapping[str, Any]], call_format: ToolCallFormat) -> str:
    """What an answer may be that is no call. Without a strict tool, JSON of other kinds too."""
    if call_format == "llama3_json" and not any(tool.get("strict") for tool in tools):
        return r'/(.|\n)+/ & ~/\s*\{\s*"name"(.|\n)*/'
    opening = r"\{" if call_format == "llama3_json" else r"\["
    return rf"/[^{opening}\s](.|\n)*/"


def _structure(
    frame: list[str],
    tools: Sequence[Mapping[str, Any]],
    call_format: ToolCallFormat,
    param: str,
    after: str = "",
    more: Sequence[Mapping[str, Any]] = (),
) -> StructuredOutput:
    try:
        functions = [_Function(tool, place, call_format) for place, tool in enumerate(tools)]
    except UnusableStructure as error:
        raise InvalidParameter(param, f"{param} can't be used: {error}") from error
    lines = [*frame, "call: " + " | ".join(f"call_{place}" for place in range(len(functions)))]
    lines += [line for function in functions for line in function.rules]
    parts: list[Mapping[str, Any]] = [{"name": "structure", "lark_grammar": "\n".join(lines)}]
    parts += [part for function in functions for part in function.parts]
    text = json.dumps([*parts, *more], ensure_ascii=False)
    return StructuredOutput(tool_calls=text, after=after, param=param)


def _calls(call_format: ToolCallFormat, most: int) -> str:
    more = f"{{0,{most - 1}}}"
    match call_format:
        case "hermes":
            call = '"<tool_call>\\n" call "\\n</tool_call>"'
            return f'calls: {call} ("\\n" {call}){more}' if most > 1 else f"calls: {call}"
        case "llama3_json":
            return f'calls: call ("; " call){more}' if most > 1 else "calls: call"
        case "pythonic":
            return f'calls: "[" call (", " call){more} "]"' if most > 1 else 'calls: "[" call "]"'


class _Function:
    """One function's rules of the grammar, and the schemas that they name."""

    def __init__(self, tool: Mapping[str, Any], place: int, call_format: ToolCallFormat) -> None:
        self.rules: list[str] = []
        self.parts: list[dict[str, Any]] = []
        self._place = place
        name, schema = str(tool["name"]), _schema(tool)
        if call_format == "pythonic" and schema == ANY_OBJECT | {"properties": {}}:
            self._write_any_keywords(name)
        elif call_format == "pythonic":
            self._write_keywords(name, schema)
        else:
            key = "arguments" if call_format == "hermes" else "parameters"
            self._write_object(name, key, schema)

    def _write_object(self, name: str, key: str, schema: dict[str, Any]) -> None:
        before = quoted(f'{{"name": {json.dumps(name, ensure_ascii=False)}, "{key}": ')
        self.rules.append(f'call_{self._place}: {before} {self._part(schema)} "}}"')

    def _write_keywords(self, name: str, schema: dict[str, Any]) -> None:
        """Keywords in the schema's order. Rule a: none was written yet; rule b: one was, so a comma comes."""
        place, properties = self._place, schema.get("properties", {})
        required = set(schema.get("required", ()))
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        self.rules.append(f'call_{place}: {quoted(name + "(")} a_{place}_0 ")"')
        for number, (keyword, inner) in enumerate(properties.items()):
            if not keyword.isidentifier():
                raise UnusableStructure(f"{name} has a parameter that is no keyword of Python.")
            whole = inner | shared if isinstance(inner, dict) else inner
            value = f"{quoted(keyword + '=')} {self._part(whole)}"
            first, later = f"a_{place}_{number + 1}", f"b_{place}_{number + 1}"
            must = keyword in required
            self.rules += [
                f"a_{place}_{number}: {value} {later}" + ("" if must else f" | {first}"),
                f'b_{place}_{number}: ", " {value} {later}' + ("" if must else f" | {later}"),
            ]
        self.rules += [f'{rule}_{place}_{len(properties)}: ""' for rule in ("a", "b")]

    def _write_any_keywords(self, name: str) -> None:
        place, value = self._place, self._part(True)
        self.rules += [
            f'call_{place}: {quoted(name + "(")} (keyword_{place} (", " keyword_{place})*)? ")"',
            f'keyword_{place}: /[A-Za-z_][A-Za-z0-9_]*/ "=" {value}',
        ]

    def _part(self, schema: Any) -> str:
        name = f"arguments_{self._place}_{len(self.parts)}"
        self.parts.append({"name": name, "json_schema": enforceable(schema)})
        return f"@{name}"


def _schema(tool: Mapping[str, Any]) -> dict[str, Any]:
    given = tool.get("parameters") or {}
    try:
        schema: Any = json.loads(given) if isinstance(given, str) else dict(given)
    except (RecursionError, ValueError) as error:
        raise UnusableStructure(f"the parameters of {tool['name']} are not JSON.") from error
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise UnusableStructure(f"the parameters of {tool['name']} must be the schema of an object.")
    if is_deeper_than(schema, MAX_SCHEMA_DEPTH):
        raise UnusableStructure(f"the parameters of {tool['name']} nest over {MAX_SCHEMA_DEPTH} levels deep.")
    required = schema.get("required", [])
    named = isinstance(required, list) and all(isinstance(name, str) for name in required)
    if not named or not isinstance(schema.get("properties", {}), dict):
        raise UnusableStructure(
            f"of the parameters of {tool['name']}, properties must be an object and required a list of names."
        )
    closed = {"type": "object", "properties": {}} | schema
    if not _SAYS_WHAT_MORE & set(closed):
        closed["additionalProperties"] = False
    return closed
