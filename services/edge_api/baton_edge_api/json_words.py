"""Free JSON of a request (schemas, template variables) as the text in which it goes over the relay."""

from __future__ import annotations

import json

from baton_edge_api.refusals import bad_value


def as_text(value: object, param: str) -> str:
    """Order and nulls as they came. Raises RequestFailed for what is nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except (RecursionError, ValueError):
        raise bad_value(param, "this is nested too deeply, or holds a number that is too large.") from None


def object_text(text: str, param: str) -> str:
    """A JSON object that came as text already. Raises RequestFailed."""
    try:
        value: object = json.loads(text)
    except (RecursionError, ValueError):
        raise bad_value(param, "this text is no JSON.") from None
    if not isinstance(value, dict):
        raise bad_value(param, "this text is no JSON object.")
    return as_text(value, param)


def plain_json(text: str) -> str:
    """JSON text without `\\u` escapes, so that guards read what the model reads; other text as it is."""
    if "\\u" not in text:
        return text
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (RecursionError, ValueError):
        return text
