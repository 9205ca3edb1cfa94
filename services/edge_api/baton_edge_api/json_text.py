"""JSON as strict as it should be between strangers: UTF-8, no NaN, no key twice, no half characters.

Owns the reading of request bodies. Knows nothing of what they mean.
"""

from __future__ import annotations

import json
from typing import Any, NoReturn

import orjson


class NotJson(ValueError):
    """The text is not JSON; the message says why, without the text."""


def parse_json(body: bytes) -> Any:
    """Raises NotJson."""
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJson(f"not UTF-8 at byte {error.start}") from None
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
        if "\\ud" in text or "\\uD" in text:
            orjson.loads(body)  # unlike the standard library it refuses a surrogate without its partner
    except NotJson:
        raise
    except RecursionError:
        raise NotJson("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise NotJson(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except ValueError:
        raise NotJson("a number is too long") from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotJson("a key stands twice in one object")
    return result


def _refuse(constant: str) -> NoReturn:
    raise NotJson(f"{constant} is not a JSON value")
