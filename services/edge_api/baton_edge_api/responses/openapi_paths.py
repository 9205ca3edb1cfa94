"""What the paths of /v1/responses take and give, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from baton_contracts.openai_response_objects import (
    DeletedResponse,
    InputItemList,
    InputTokenCount,
    ResponseEvent,
    ResponseObject,
)
from baton_contracts.openai_responses import ResponseRequest
from baton_edge_api.openapi_parts import (
    LIMITED,
    answer,
    body,
    content,
    limited_answer,
    operation,
    order,
    page_limit,
    parameter,
    request_id,
)

RESPONSE_MODELS = (
    ResponseRequest,
    ResponseObject,
    ResponseEvent,
    DeletedResponse,
    InputItemList,
    InputTokenCount,
)

_TOLD = content("ResponseObject") | content("ResponseEvent", "text/event-stream")
_STORED = (404, 413, 502, 504)


def response_paths() -> dict[str, Any]:
    response_id = parameter("response_id", "path", "As in the response's id.")
    return {
        "/v1/responses": {"post": _create()},
        "/v1/responses/input_tokens": {"post": _count()},
        "/v1/responses/{response_id}": {
            "get": operation(
                "getResponse",
                "A stored response; with `stream` the events of one that was asked for with background and "
                "stream, while it is made and for ten minutes after its end.",
                answer("It, or its events.", _TOLD),
                key=True,
                failures=_STORED,
                parameters=[
                    response_id,
                    parameter("stream", "query", "true: its events, from the first.", enum=["true", "false"]),
                    parameter(
                        "starting_after",
                        "query",
                        "With stream: the sequence_number of the last event not wanted.",
                        pattern="^[0-9]{1,9}$",
                    ),
                ],
            ),
            "delete": operation(
                "deleteResponse",
                "Forget a stored response.",
                answer("It is gone.", content("DeletedResponse")),
                key=True,
                failures=(409, *_STORED),
                parameters=[response_id],
            ),
        },
        "/v1/responses/{response_id}/cancel": {
            "post": operation(
                "cancelResponse",
                "Cancel a response that is made in the background; one that has ended stays as it is.",
                answer("It, as it is then.", content("ResponseObject")),
                key=True,
                failures=_STORED,
                parameters=[response_id],
            )
        },
        "/v1/responses/{response_id}/input_items": {"get": _input_items(response_id)},
    }


def _create() -> dict[str, Any]:
    return operation(
        "createResponse",
        "Answer, whole, as typed server-sent events or in the background, and store what was answered.",
        limited_answer("The response; with `stream`, its events, the last with the whole response.", _TOLD),
        key=True,
        failures=LIMITED,
        requestBody=body("ResponseRequest"),
        parameters=[request_id("x-request-id", "header", "Your own id: 32 hex digits or a UUID.")],
    )


def _count() -> dict[str, Any]:
    return operation(
        "countInputTokens",
        "How many tokens a request would show the model: what it says and continues, without documents and "
        "the stored conversation that would be added.",
        answer("By the model's own tokenizer and chat template.", content("InputTokenCount")),
        key=True,
        failures=(403, *_STORED),
        requestBody=body("ResponseRequest"),
    )


def _input_items(response_id: dict[str, Any]) -> dict[str, Any]:
    return operation(
        "listInputItems",
        "The items that were new in a response's request.",
        answer("A page of them.", content("InputItemList")),
        key=True,
        failures=_STORED,
        parameters=[
            response_id,
            page_limit(100, 20),
            order(),
            parameter("after", "query", "The id of the item before the first one wanted."),
        ],
    )
