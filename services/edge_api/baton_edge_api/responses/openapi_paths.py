"""What the paths of /v1/responses take and give, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from baton_contracts.openai_response_objects import (
    DeletedResponse,
    InputItemList,
    ResponseEvent,
    ResponseObject,
)
from baton_contracts.openai_responses import ResponseRequest
from baton_edge_api.openapi_parts import answer, body, content, operation, parameter

RESPONSE_MODELS = (ResponseRequest, ResponseObject, ResponseEvent, DeletedResponse, InputItemList)


def response_paths() -> dict[str, Any]:
    response_id = parameter("response_id", "path", "As in the response's id.")
    return {
        "/v1/responses": {"post": _create()},
        "/v1/responses/{response_id}": {
            "get": operation(
                "getResponse",
                "A stored response.",
                answer("It.", content("ResponseObject")),
                key=True,
                parameters=[response_id],
            ),
            "delete": operation(
                "deleteResponse",
                "Forget a stored response.",
                answer("It is gone.", content("DeletedResponse")),
                key=True,
                parameters=[response_id],
            ),
        },
        "/v1/responses/{response_id}/input_items": {"get": _input_items(response_id)},
    }


def _create() -> dict[str, Any]:
    told = content("ResponseObject") | content("ResponseEvent", "text/event-stream")
    return operation(
        "createResponse",
        "Answer, whole or as typed server-sent events, and store what was answered.",
        answer("The response; with `stream`, its events. The last one holds the whole response.", told),
        key=True,
        requestBody=body("ResponseRequest"),
        parameters=[parameter("x-request-id", "header", "Your own id: 32 hex digits or a UUID.")],
    )


def _input_items(response_id: dict[str, Any]) -> dict[str, Any]:
    return operation(
        "listInputItems",
        "The items that were new in a response's request.",
        answer("A page of them.", content("InputItemList")),
        key=True,
        parameters=[
            response_id,
            parameter("limit", "query", "How many, 1 to 100; 20 if left out."),
            parameter("order", "query", "`asc`, or `desc` if left out."),
            parameter("after", "query", "The id of the item before the first one wanted."),
        ],
    )
