"""The ways in which a request's parameter is refused, each a sentence that begins with its name."""

from __future__ import annotations

from baton_common.errors import RequestFailed


def bad_value(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("invalid_value", f"{param}: {text}", param=param)


def not_served(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("unsupported_parameter", f"{param}: {text}", param=param)


def missing(param: str, text: str) -> RequestFailed:
    return RequestFailed.because("missing_required_parameter", f"{param}: {text}", param=param)
