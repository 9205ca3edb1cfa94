"""The pieces that paths of the OpenAPI document are made of.

Owns what each error status means and which headers stand where: the document names every status that a
path may answer with, and no other.
"""

from __future__ import annotations

from typing import Any

JSON = "application/json"
REF = "#/components/schemas/"

_REQUEST_ID_HEADER = {
    "description": "The id of this request in traces, ledger and logs.",
    "required": True,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
}
_WHOLE = {"type": "string", "pattern": "^[0-9]+$"}
RETRY = {
    "retry-after": {"description": "Whole seconds.", "required": True, "schema": _WHOLE},
    "retry-after-ms": {"description": "Milliseconds.", "required": True, "schema": _WHOLE},
}
_STOP = {"x-baton-stop": {"description": "The service that gave up.", "schema": {"type": "string"}}}
_RATES = {
    f"x-ratelimit-{figure}-{what}": {"description": description, "schema": schema}
    for what in ("requests", "tokens")
    for figure, description, schema in (
        ("limit", f"{what.capitalize()} a minute, of the account with the least left.", _WHOLE),
        ("remaining", "What is left of them.", _WHOLE),
        ("reset", "When all are there again: `59.82s`, `250ms`.", {"type": "string"}),
    )
} | {
    "x-baton-budget-alert": {
        "description": "Accounts that have used most of their budget: `key 92%`.",
        "schema": {"type": "string"},
    }
}
_ABOUT = {
    name: {"description": text, "schema": {"type": "string"}}
    for name, text in (
        ("x-baton-ignored-parameters", "Parameters of the request that have no effect here."),
        ("x-baton-model", "The model that answered."),
        ("x-baton-replica", "The replica or the other server that answered."),
        ("x-baton-cache", "What the response cache did."),
        ("x-baton-cache-similarity", "Of the question that was answered before, with `semantic`."),
        ("x-conversation-id", "Under which the exchange is kept."),
    )
}
_MORE_HEADERS: dict[int, dict[str, Any]] = {
    401: {"www-authenticate": {"required": True, "schema": {"type": "string"}}},
    429: RETRY
    | {
        "x-should-retry": {
            "description": "`false`: a budget is spent, or the request alone is over a limit.",
            "schema": {"type": "string"},
        }
    },
    502: _STOP,
    503: RETRY | _STOP,
    504: _STOP,
}

_EXAMPLE_ID = "0af7651916cd43dd8448eb211c80319c"
_ID = "^([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$"

ERRORS: dict[int, str] = {
    400: "Not valid, not served, or it did not fit; `param` names what.",
    401: "No key, or not a valid one.",
    403: "The key may not ask for this.",
    404: "There is no such thing, or it is somebody else's.",
    409: "It contradicts what is there: an id that is under way, a batch that is over, a response half made.",
    413: "Too large.",
    429: "Over a limit, or a budget is spent.",
    499: "Cancelled before its answer began.",
    500: "Something failed that should not.",
    502: "A stop, or another server behind one, was lost or answered wrongly.",
    503: "No room, or a stop is not there; try again when Retry-After says.",
    504: "It took too long.",
}

_ALWAYS = (400, 500)
_WITH_KEY = (401, 503)
READS_BODY = (413,)
LIMITED = (403, 404, 409, 413, 429, 499, 502, 504)
"""What reserves, asks a model and waits for it."""


def content(schema: str, media_type: str = JSON) -> dict[str, Any]:
    return {media_type: {"schema": {"$ref": f"{REF}{schema}"}}}


def answer(
    description: str, content: dict[str, Any] | None = None, headers: dict[str, Any] | None = None
) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": description,
        "headers": {"x-request-id": _REQUEST_ID_HEADER} | (headers or {}),
    }
    return answer | ({"content": content} if content else {})


def limited_answer(description: str, content: dict[str, Any]) -> dict[str, Any]:
    """One that says how the caller's limits stand; and what was taken without effect."""
    return answer(description, content, _RATES | _ABOUT)


def error_answers() -> dict[str, Any]:
    """For `components.responses`."""
    return {
        f"Error{status}": answer(text, content("ErrorAnswer"), _MORE_HEADERS.get(status, {}) | _rates(status))
        for status, text in ERRORS.items()
    }


def _rates(status: int) -> dict[str, Any]:
    return _RATES if status in (400, 403, 404, 413, 429, 502, 503, 504) else {}


def operation(
    name: str,
    summary: str,
    success: dict[str, Any],
    *,
    key: bool,
    failures: tuple[int, ...] = (),
    **more: Any,
) -> dict[str, Any]:
    statuses = sorted({*_ALWAYS, *(_WITH_KEY if key else ()), *failures})
    security: dict[str, Any] = {} if key else {"security": []}
    errors = {str(status): {"$ref": f"#/components/responses/Error{status}"} for status in statuses}
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "responses": {"200": success} | errors,
    }
    return operation | security | more


def parameter(name: str, where: str, description: str, **schema: Any) -> dict[str, Any]:
    """A string, if `schema` does not say otherwise."""
    return {
        "name": name,
        "in": where,
        "required": where == "path",
        "description": description,
        "schema": {"type": "string"} | schema,
    }


def request_id(name: str, where: str, description: str) -> dict[str, Any]:
    no_zeros: dict[str, Any] = {"not": {"pattern": "^[0-]*$"}}
    return parameter(name, where, description, pattern=_ID, **no_zeros) | {"example": _EXAMPLE_ID}


def page_limit(most: int, default: int) -> dict[str, Any]:
    text = f"How many; {default} if left out."
    return parameter("limit", "query", text, type="integer", minimum=1, maximum=most)


def order() -> dict[str, Any]:
    return parameter("order", "query", "By time; `desc` if left out.", enum=["asc", "desc"])


def body(schema: str) -> dict[str, Any]:
    return {"required": True, "content": content(schema)}
