"""Error codes: one table from code to HTTP status and OpenAI error type.

An error is data that crosses the bus (`ErrorBody`), not an exception. `stop` names the service that
gave up, so that a 503 says where it was born.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.subjects import Service

ErrorCode = Literal[
    "invalid_request",
    "invalid_json",
    "invalid_value",
    "invalid_type",
    "missing_required_parameter",
    "unknown_parameter",
    "unsupported_parameter",
    "invalid_request_id",
    "context_length_exceeded",
    "content_filter",
    "invalid_api_key",
    "permission_denied",
    "not_found",
    "model_not_found",
    "method_not_allowed",
    "conflict",
    "request_too_large",
    "rate_limit_exceeded",
    "insufficient_quota",
    "client_closed_request",
    "internal_error",
    "stop_failed",
    "stop_lost",
    "stream_gap",
    "slow_consumer",
    "upstream_error",
    "no_responder",
    "stop_busy",
    "stop_unresponsive",
    "shutting_down",
    "no_ready_replica",
    "queue_full",
    "kv_exhausted",
    "bus_unavailable",
    "deadline_exceeded",
    "idle_timeout",
]

ErrorType = Literal[
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "rate_limit_error",
    "server_error",
    "service_unavailable_error",
    "timeout_error",
]

_STATUS: dict[ErrorCode, int] = {
    "invalid_request": 400,
    "invalid_json": 400,
    "invalid_value": 400,
    "invalid_type": 400,
    "missing_required_parameter": 400,
    "unknown_parameter": 400,
    "unsupported_parameter": 400,
    "invalid_request_id": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_api_key": 401,
    "permission_denied": 403,
    "not_found": 404,
    "model_not_found": 404,
    "method_not_allowed": 405,
    "conflict": 409,
    "request_too_large": 413,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "client_closed_request": 499,
    "internal_error": 500,
    "stop_failed": 500,
    "stop_lost": 502,
    "stream_gap": 502,
    "slow_consumer": 502,
    "upstream_error": 502,
    "no_responder": 503,
    "stop_busy": 503,
    "stop_unresponsive": 503,
    "shutting_down": 503,
    "no_ready_replica": 503,
    "queue_full": 503,
    "kv_exhausted": 503,
    "bus_unavailable": 503,
    "deadline_exceeded": 504,
    "idle_timeout": 504,
}

_TYPE_OF_STATUS: dict[int, ErrorType] = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "invalid_request_error",
    413: "invalid_request_error",
    429: "rate_limit_error",
    499: "invalid_request_error",
    500: "server_error",
    502: "server_error",
    503: "service_unavailable_error",
    504: "timeout_error",
}


def http_status(code: ErrorCode) -> int:
    return _STATUS[code]


def error_type(code: ErrorCode) -> ErrorType:
    return _TYPE_OF_STATUS[_STATUS[code]]


class ErrorBody(WireModel):
    """What went wrong, where, and what to do; becomes the OpenAI error object at the edge."""

    code: ErrorCode
    message: str = Field(description="For people: what was wrong, where, and what to do about it.")
    param: str | None = Field(
        default=None, description="The request parameter at fault, as the client named it."
    )
    stop: Service | None = Field(default=None, description="The service that gave up.")
    replica: str | None = Field(
        default=None, description="Router: the replica that did not take it; the next attempt avoids it."
    )
    retry_after_seconds: float | None = Field(default=None, ge=0, description="When another try makes sense.")

    @property
    def status(self) -> int:
        return http_status(self.code)
