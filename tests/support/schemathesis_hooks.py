"""Loaded by schemathesis: an invented model's name would end every question at 404."""

from __future__ import annotations

from typing import Any

import schemathesis

_SERVED = {"/v1/embeddings": "degrees-3d"}
_CHAT = "smollm2-135m"


@schemathesis.hook
def map_body(context: schemathesis.HookContext, body: Any) -> Any:
    if context.operation and isinstance(body, dict) and isinstance(body.get("model"), str) and body["model"]:
        body["model"] = _SERVED.get(context.operation.path, _CHAT)
    return body
