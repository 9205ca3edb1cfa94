"""Loaded by schemathesis: an invented model's name would end every question at 404. What is no name stays."""

from __future__ import annotations

from typing import Any

import schemathesis

_SERVED = {"/v1/embeddings": "degrees-3d"}
_CHAT = "smollm2-135m"
_LONGEST_NAME = 256


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    name = body.get("model") if isinstance(body, dict) else None
    if context.operation and isinstance(name, str) and 1 <= len(name) <= _LONGEST_NAME:
        body["model"] = _SERVED.get(context.operation.path, _CHAT)
    return body
