"""JSON schemas as the mask library is given them. Owns what of a schema is left out because it says nothing
about which answers are valid, and how JSON is laid out; knows no tokens and no other kind of structure.

What the library can't enforce (`not`, `if`, `uniqueItems` …) it refuses, and so do we: an answer that is said
to follow a schema follows all of it.
"""

from __future__ import annotations

from typing import Any, Final

LAYOUT: Final = {"whitespace_pattern": "[ ]?"}
_KNOWN_FORMATS: Final = frozenset(
    "date-time time date duration email hostname ipv4 ipv6 uuid uri unknown".split()  # noqa: SIM905
)
_SCHEMA_MAPS: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_VALUES: Final = ("const", "enum", "default", "examples", "example")


def enforceable(schema: Any) -> dict[str, Any]:
    """A parsed schema, ready for the library. A boolean stands for what it means."""
    if isinstance(schema, bool):
        return {"x-guidance": LAYOUT} if schema else {"anyOf": []}
    return {**_without_annotations(schema), "x-guidance": LAYOUT}


def _without_annotations(schema: Any) -> Any:
    """Unknown formats are annotations by the specification; `uniqueItems: false` is the default.

    The depth is bounded where schemas come in.
    """
    if isinstance(schema, list):
        return [_without_annotations(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if _says_nothing(key, value):
            continue
        if key in _SCHEMA_MAPS and isinstance(value, dict):
            kept[key] = {name: _without_annotations(part) for name, part in value.items()}
        else:
            kept[key] = value if key in _VALUES else _without_annotations(value)
    return kept


def _says_nothing(key: str, value: Any) -> bool:
    if key == "format":
        return isinstance(value, str) and value not in _KNOWN_FORMATS
    return (key == "uniqueItems" and value is False) or key == "x-guidance"
