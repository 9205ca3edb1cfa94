"""The ways in which a request's parameter is refused, each a sentence that begins with its name."""

from __future__ import annotations

from baton_common.errors import RequestFailed


def bad_value(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("invalid_value", f"{param}: {text}", param=param)


def not_served(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("unsupported_parameter", f"{param}: {text}", param=param)


def check_num_characters(total: int, limit: int, param: str) -> None:
    """Of all text of one request. Raises RequestFailed."""
    if total > limit:
        text = f"The request holds {total} characters of text; at most {limit} are accepted. Shorten it."
        raise RequestFailed.because("request_too_large", text, param=param)


def missing(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("missing_required_parameter", f"{param}: {text}", param=param)
