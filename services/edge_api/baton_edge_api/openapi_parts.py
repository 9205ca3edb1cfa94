"""The pieces that paths of the OpenAPI document are made of."""

from __future__ import annotations

from typing import Any

JSON = "application/json"
REF = "#/components/schemas/"

_REQUEST_ID_HEADER = {
    "description": "The id of this request in traces, ledger and logs.",
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}


def content(schema: str, media_type: str = JSON) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": f"{REF}{schema}"}}}


def answer(description: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": description, "headers": {"x-request-id": _REQUEST_ID_HEADER}}
    return answer | ({"content": content} if content else {})


def any_json(description: str) -> dict[str, Any]:
    return answer(description, {JSON: {"schema": {"type": "object"}}})


def operation(name: str, summary: str, success: dict[str, Any], *, key: bool, **more: Any) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": success,
            "default": answer("Anything else; the status says which kind.", content("ErrorAnswer")),
        },
    }
    return operation | ({} if key else {"security": []}) | more


def parameter(name: str, where: str, description: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": description,
        "schema": {"type": "string"},
    }


def body(schema: str) -> dict[str, Any]:
    return {"required": True, "content": content(schema)}
