"""What a server's failure means: the error for the client, and whether it speaks against the server. Pure.

its answer                    error for the client              counts against it   another one may be tried
no connection, broke off      upstream_error (502)              yes                 yes
silent for too long           upstream_error (502)              yes                 yes
5xx, 408, 425                 upstream_error (502)              yes                 yes
429                           rate_limit_exceeded (429)         no, but it rests    yes, at once
401, 403, 404                 upstream_error (502)              no                  yes, at once
other 4xx                     as it says (400, 413, 422 → 400)  no                  no
"""

from __future__ import annotations

import email.utils
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import orjson

from baton_common.routes import Target
from baton_contracts.errors import ErrorBody, ErrorCode

MAX_RETRY_AFTER_SECONDS = 3600.0
MESSAGE_CHARACTERS = 500


@dataclass(frozen=True)
class Failure:
    error: ErrorBody
    counts: bool = False
    """Against the target: after some in a row it is left alone for a while."""
    elsewhere: bool = False
    """Nothing is wrong with the request: another target may answer it, with no pause before."""


def broken(target: Target, what: str) -> Failure:
    """No answer, or half of one."""
    return Failure(_error("upstream_error", f"{target.name} {what}"), counts=True)


def refused(target: Target, status: int, headers: Mapping[str, str], body: bytes) -> Failure:
    """An answer whose status is not 200."""
    said = _said(body)
    message = str(said.get("message") or "").strip()[:MESSAGE_CHARACTERS] or "no reason given"
    wait = retry_after_seconds(headers)
    if status == 429:
        text = f"{target.name} has had too many requests: {message}"
        return Failure(_error("rate_limit_exceeded", text, wait=wait), elsewhere=True)
    if status in (401, 403, 404):
        what = "does not know this model" if status == 404 else "does not accept Baton's key"
        text = f"{target.name} {what} (HTTP {status}). The operator has to look at the catalog."
        return Failure(_error("upstream_error", text), elsewhere=True)
    if status < 400 or status >= 500 or status in (408, 425):
        error = _error("upstream_error", f"{target.name} answered HTTP {status}: {message}", wait=wait)
        return Failure(error, counts=True)
    param = said.get("param")
    return Failure(_error(_code(status, said), message, param=param if isinstance(param, str) else None))


def from_stream(target: Target, error: Mapping[str, Any]) -> Failure:
    """An error event where chunks were expected. Its code may be that of an HTTP status."""
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return refused(target, code, {}, orjson.dumps({"error": dict(error)}))
    message = str(error.get("message") or "no reason given")[:MESSAGE_CHARACTERS]
    if error.get("type") == "rate_limit_error" or code == "rate_limit_exceeded":
        return refused(target, 429, {}, orjson.dumps({"error": dict(error)}))
    return broken(target, f"broke off: {message}")


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """`retry-after-ms`, or `Retry-After` in seconds or as a date; None for what can't be read."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            seconds = _seconds_until(text)
        if math.isfinite(seconds) and seconds >= 0:
            return min(seconds, MAX_RETRY_AFTER_SECONDS)
    return None


def _seconds_until(date: str) -> float:
    try:
        return max(0.0, email.utils.parsedate_to_datetime(date).timestamp() - time.time())
    except ValueError:
        return math.nan


def _said(body: bytes) -> Mapping[str, Any]:
    """OpenAI's error object, or what others send in its place."""
    try:
        value: object = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    value = cast(dict[str, Any], value)
    error = value.get("error", value)
    if isinstance(error, dict):
        return cast(dict[str, Any], error)
    return {"message": error} if isinstance(error, str) else {}


def _code(status: int, said: Mapping[str, Any]) -> ErrorCode:
    if said.get("code") == "context_length_exceeded":
        return "context_length_exceeded"
    if said.get("code") == "content_filter":
        return "content_filter"
    return "request_too_large" if status == 413 else "invalid_request"


def _error(
    code: ErrorCode, message: str, *, wait: float | None = None, param: str | None = None
) -> ErrorBody:
    return ErrorBody(code=code, message=message, stop="llm_gateway", retry_after_seconds=wait, param=param)
