"""The paths that the relay does not answer, for the OpenAPI document: models, books, traces, pages."""

from __future__ import annotations

from typing import Any

from baton_contracts import openai_answers, openai_requests, own_answers
from baton_edge_api.openapi_parts import (
    RETRY,
    answer,
    body,
    content,
    operation,
    page_limit,
    parameter,
    request_id,
)

SIDE_MODELS = (
    openai_answers.ModelCard,
    openai_answers.ModelList,
    openai_requests.DocumentRequest,
    openai_answers.DocumentAnswer,
    own_answers.Alive,
    own_answers.Conversation,
    own_answers.DocumentDeleted,
    own_answers.NotReady,
    own_answers.Ready,
    own_answers.Trace,
    own_answers.TraceList,
    own_answers.UsageRows,
    own_answers.UsageSums,
)
_ASKS = (413, 502, 504)
"""What asks another service: its answer may be too large for the bus."""


def _get(
    name: str, summary: str, schema: str, *parameters: dict[str, Any], failures: tuple[int, ...] = ()
) -> dict[str, Any]:
    success = answer("It.", content(schema))
    return operation(name, summary, success, key=True, failures=failures, parameters=list(parameters))


_MOMENT_SINCE = parameter("since", "query", "What ended from then on: a day (UTC), ISO 8601 or Unix seconds.")
_MOMENT_UNTIL = parameter("until", "query", "And before this time; now, if left out.")


def side_paths() -> dict[str, Any]:
    model = parameter("name", "path", "A served model or an alias.")
    trace = request_id("request_id", "path", "As in x-request-id.")
    conversation = parameter(
        "conversation_id", "path", "As in x-conversation-id.", pattern="^[A-Za-z0-9_-]{1,64}$"
    )
    return {
        "/v1/models": {"get": _get("listModels", "Models served now.", "ModelList")},
        "/v1/models/{name}": {"get": _get("getModel", "One model.", "ModelCard", model, failures=(404,))},
        "/v1/traces": {
            "get": _get(
                "listTraces",
                "The newest traces, or those of a time or an ending.",
                "TraceList",
                page_limit(100, 20),
                parameter("status", "query", "Only those.", enum=["error", "cancelled"]),
                _MOMENT_SINCE,
                _MOMENT_UNTIL,
                parameter("page", "query", "`next_page` of the answer before.", pattern="^[1-9][0-9]{0,17}$"),
                failures=_ASKS,
            )
        },
        "/v1/traces/{request_id}": {
            "get": _get("getTrace", "A request's way.", "Trace", trace, failures=(404, *_ASKS))
        },
        "/v1/conversations/{conversation_id}": {
            "get": _get(
                "getConversation",
                "A stored conversation.",
                "Conversation",
                conversation,
                failures=(404, *_ASKS),
            )
        },
        "/v1/usage": {"get": _usage()},
        "/v1/documents": _documents(),
        "/v1/documents/{source}": {"delete": _removal("removeDocumentByPath", "path")},
    }


def _usage() -> dict[str, Any]:
    told = {"application/json": {"schema": {"anyOf": [_ref("UsageRows"), _ref("UsageSums")]}}}
    return operation(
        "getUsage",
        "Ledger rows of a request, or with `by` sums over a time. One of the two must be given.",
        answer("The rows, or the sums.", told),
        key=True,
        failures=_ASKS,
        parameters=[
            request_id("request_id", "query", "As in x-request-id."),
            parameter(
                "by",
                "query",
                "What sums tell apart.",
                pattern="^(key|team|model|day)(,(key|team|model|day))*$",
            ),
            _MOMENT_SINCE,
            _MOMENT_UNTIL,
            *(parameter(name, "query", "Of sums: only of this one.") for name in ("key_id", "team", "model")),
            parameter("page", "query", "Of sums: `next_page` of the answer before; the rest as there."),
        ],
    )


def _ref(schema: str) -> dict[str, str]:
    [(_, media)] = content(schema).items()
    return media["schema"]


def _documents() -> dict[str, Any]:
    add = operation(
        "addDocument",
        "Add a document to what answers may draw on, or replace it.",
        answer("What changed.", content("DocumentAnswer")),
        key=True,
        failures=_ASKS,
        requestBody=body("DocumentRequest"),
    )
    return {"post": add, "delete": _removal("removeDocument", "query")}


def _removal(name: str, where: str) -> dict[str, Any]:
    source = parameter("source", where, "The document's name.", minLength=1, maxLength=512)
    success = answer("It is gone, or was not there.", content("DocumentDeleted"))
    asked = [source | {"required": True}]
    failures = (404, *_ASKS) if where == "path" else _ASKS
    return operation(name, "Take a document out.", success, key=True, failures=failures, parameters=asked)


def open_paths() -> dict[str, Any]:
    """Those that need no key."""
    text = {"text/plain": {"schema": {"type": "string"}}}
    ready = operation(
        "readyz",
        "Would a question be answered now?",
        answer("It would.", content("Ready")),
        key=False,
        failures=(503,),
    )
    ready["responses"]["503"] = answer("It would not.", content("NotReady"), RETRY)
    return {
        "/healthz": {"get": _open("healthz", "Is the process alive?", content("Alive"))},
        "/readyz": {"get": ready},
        "/metrics": {"get": _open("metrics", "Prometheus metrics.", text)},
        "/openapi.json": {
            "get": _open("openapi", "This document.", {"application/json": {"schema": {"type": "object"}}})
        },
        "/": {"get": _page("chatPage")},
        "/ui": {"get": _page("chatPageByName")},
        "/ui/{path}": {
            "get": _page("pageFile") | {"parameters": [parameter("path", "path", "A file of the pages.")]}
        },
    }


def _open(name: str, summary: str, told: dict[str, Any]) -> dict[str, Any]:
    return operation(name, summary, answer("It.", told), key=False)


def _page(name: str) -> dict[str, Any]:
    kinds = ("text/html", "text/css", "text/javascript", "image/svg+xml")
    told = {kind: {"schema": {"type": "string"}} for kind in kinds}
    return operation(
        name, "The chat page and its parts.", answer("It.", told), key=False, failures=(404, 502, 503, 504)
    )
