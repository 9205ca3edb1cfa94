"""JSON schemas as the mask library is given them. Owns what of a schema is left out because it says nothing
about which answers are valid, what can be said exactly in keywords that the library has, and how JSON is laid
out; knows no tokens and no other kind of structure. Which objects hold only what they name: `closed_objects`.

What the library can't enforce (`if`, `uniqueItems`, `contains`, most of `not` …) it refuses, and so do we: an
answer that is said to follow a schema follows all of it.
"""

from __future__ import annotations

from typing import Any, Final

from baton_engine.structured.closed_objects import with_closed_objects

LAYOUT: Final = {"whitespace_pattern": "[ ]?"}
_KNOWN_FORMATS: Final = frozenset(
    "date-time time date duration email hostname ipv4 ipv6 uuid uri unknown".split()  # noqa: SIM905
)
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES: Final = ("const", "enum", "default", "examples", "example")
_NOTHING: Final[dict[str, Any]] = {"anyOf": []}
"""The schema of no value."""

Schema = dict[str, Any]


def enforceable(schema: Any) -> Schema:
    """A parsed schema, ready for the library. A boolean stands for what it means."""
    if isinstance(schema, bool):
        return {"x-guidance": LAYOUT} if schema else _NOTHING
    return {**_translated(with_closed_objects(schema)), "x-guidance": LAYOUT}


def _translated(schema: Any) -> Any:
    """The depth is bounded where schemas come in."""
    if isinstance(schema, list):
        return [_translated(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Schema = {}
    for key, value in schema.items():
        if _says_nothing(key, value):
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            kept[key] = {name: _translated(part) for name, part in value.items()}
        else:
            kept[key] = value if key in _VALUES else _translated(value)
    if kept.get("not") == {} or kept.get("not") is True:
        return _NOTHING
    return _with_one_of_names(_with_needs_as_choices(_with_names_as_properties(kept)))


def _says_nothing(key: str, value: Any) -> bool:
    """Unknown formats are annotations by the specification; `uniqueItems: false` is the default; the names of
    properties are texts."""
    match key:
        case "format":
            return isinstance(value, str) and value not in _KNOWN_FORMATS
        case "uniqueItems":
            return value is False
        case "propertyNames":
            return value is True or value in ({}, {"type": "string"})
        case _:
            return key == "x-guidance"


def _with_names_as_properties(schema: Schema) -> Schema:
    """`propertyNames` of a list of names, or of one pattern where no others are at work."""
    names: Any = schema.get("propertyNames")
    if not isinstance(names, dict) or "patternProperties" in schema:
        return schema
    wanted = {key: value for key, value in names.items() if (key, value) != ("type", "string")}
    known, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    match wanted:
        case {"enum": list(allowed)} if len(wanted) == 1 and isinstance(known, dict):
            told = {name: known.get(name, rest) for name in allowed if isinstance(name, str)}
            closed: Schema = {"properties": told | {name: False for name in known if name not in told}}
        case {"pattern": str(pattern)} if len(wanted) == 1 and not known:
            closed = {"patternProperties": {pattern: rest}}
        case _:
            return schema
    kept = {key: value for key, value in schema.items() if key != "propertyNames"}
    return kept | closed | {"additionalProperties": False}


def _with_needs_as_choices(schema: Schema) -> Schema:
    """`dependentRequired`: a property is not there, or those that it needs are there too."""
    needs: Any = schema.get("dependentRequired")
    if not isinstance(needs, dict) or not all(isinstance(names, list) for names in needs.values()):
        return schema
    choices = [
        {"anyOf": [{"properties": {name: False}}, {"required": [name, *names]}]}
        for name, names in needs.items()
    ]
    return _with_all_of(schema, "dependentRequired", choices)


def _with_one_of_names(schema: Schema) -> Schema:
    """`oneOf` of required names, the usual way to say that exactly one of some properties is there."""
    parts: Any = schema.get("oneOf")
    names = [_only_name(part) for part in parts] if isinstance(parts, list) else []
    if len(names) < 2 or None in names or len(set(names)) < len(names):
        return schema
    choices = [
        {
            "type": "object",
            "required": [name],
            "properties": {other: False for other in names if other != name},
        }
        for name in names
    ]
    return _with_all_of(schema, "oneOf", [{"anyOf": choices}])


def _only_name(part: Any) -> str | None:
    """Of a schema that says nothing but that one property is there."""
    match part:
        case {"required": [str(name)], **others} if others in ({}, {"type": "object"}):
            return name
        case _:
            return None


def _with_all_of(schema: Schema, instead_of: str, parts: list[Schema]) -> Schema:
    if not isinstance(schema.get("allOf", []), list):
        return schema  # the library says what is wrong with it
    kept = {key: value for key, value in schema.items() if key != instead_of}
    return kept | {"allOf": [*schema.get("allOf", ()), *parts]}
