"""Objects of a JSON schema that name properties, and don't say whether they may hold others: they hold none.

By the specification they may, and a small model then goes on inventing properties until its tokens are used
up. What is left of the answers is valid all the same where nothing else judges the object: one that does
stand under another schema too (`allOf`, `oneOf`, what is beside `anyOf` or `$ref`), or that says
`additionalProperties` itself, stays as it is. Owns which objects those are.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

Schema = dict[str, Any]

_DEFINITIONS: Final = ("$defs", "definitions")
_VALUES: Final = ("properties", "items", "prefixItems", "additionalItems", "additionalProperties")
"""What stands under these judges values inside of the value."""
_PARTS: Final = frozenset({"anyOf", "allOf", "oneOf", "$ref"})
_ALSO: Final = _PARTS | {
    "not", "if", "then", "else", "contains", "dependentSchemas", "dependencies", "patternProperties",
    "unevaluatedItems", "unevaluatedProperties",
}  # fmt: skip
"""With one of these, a value inside may have several judges."""
_NOTES: Final = frozenset(
    {"title", "description", "default", "example", "examples", "deprecated", "readOnly", "writeOnly", "type"}
    | {"$schema", "$id", "$comment", *_DEFINITIONS}
)
"""What may stand beside one of _PARTS and asks nothing of an object's properties."""
_CLOSABLE: Final = _NOTES | {"properties", "required", "maxProperties"}
_NAMES: Final = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef")
_ROUNDS: Final = 8


class _Place(NamedTuple):
    pointer: str
    schema: Schema
    alone: bool
    """No other schema judges what it judges."""


def with_closed_objects(schema: Any) -> Any:
    """A copy of a parsed schema whose depth is bounded."""
    schema = deepcopy(schema)
    places = _settled(schema)
    for place in places:
        if place.alone and _is_closable(place.schema):
            place.schema["additionalProperties"] = False
    return schema


def _settled(schema: Any) -> list[_Place]:
    """All places, once it is known which of them a reference makes part of another one. None if some can't be
    found by their pointers, or if references pass on what they are part of further than anybody writes."""
    shared: set[str] = set()
    for _ in range(_ROUNDS):
        places = list(_places(schema, "#", shared, alone=True))
        known = {place.pointer for place in places}
        if any(_has_names(place) or _target(place) not in known for place in places):
            return []
        told = {_target(place) for place in places if not _passes_on(place, "$ref")}
        if told <= shared:
            return places
        shared |= told
    return []


def _places(schema: Any, pointer: str, shared: set[str], *, alone: bool) -> Iterator[_Place]:
    if isinstance(schema, list):
        for index, part in enumerate(schema):
            yield from _places(part, f"{pointer}/{index}", shared, alone=alone)
    if not isinstance(schema, dict):
        return
    place = _Place(pointer, schema, alone and pointer not in shared)
    yield place
    for key, value in schema.items():
        at = f"{pointer}/{key}"
        if key in _DEFINITIONS:
            yield from _named(value, at, shared, alone=True)
        elif key in _VALUES:
            step = _named if key == "properties" else _places
            yield from step(value, at, shared, alone=place.alone and not schema.keys() & _ALSO)
        elif key in ("patternProperties", "dependentSchemas", "dependencies"):
            yield from _named(value, at, shared, alone=False)
        elif key in _ALSO:
            yield from _places(value, at, shared, alone=_passes_on(place, key))


def _named(schemas: Any, pointer: str, shared: set[str], *, alone: bool) -> Iterator[_Place]:
    for name, part in schemas.items() if isinstance(schemas, dict) else ():
        yield from _places(part, f"{pointer}/{name}", shared, alone=alone)


def _passes_on(place: _Place, key: str) -> bool:
    """What stands under `key` judges alone if this place does; a place without `key` has nothing to share."""
    value = place.schema.get(key)
    several = isinstance(value, list) and len(value) > 1 and key != "anyOf"
    whole = place.alone and place.schema.keys() <= _NOTES | {key} and key in _PARTS and not several
    return whole or key not in place.schema


def _target(place: _Place) -> str:
    return unquote(place.schema.get("$ref", "#")).replace("~1", "/").replace("~0", "~")


def _has_names(place: _Place) -> bool:
    target = place.schema.get("$ref", "#")
    by_pointer = isinstance(target, str) and (target == "#" or target.startswith("#/"))
    is_base = "$id" in place.schema and place.pointer != "#"
    return not by_pointer or is_base or any(key in place.schema for key in _NAMES)


def _is_closable(schema: Schema) -> bool:
    properties, required = schema.get("properties"), schema.get("required", [])
    return (
        schema.keys() <= _CLOSABLE
        and bool(properties)
        and isinstance(properties, dict)
        and isinstance(required, list)
        and all(isinstance(name, str) and name in properties for name in required)
    )
