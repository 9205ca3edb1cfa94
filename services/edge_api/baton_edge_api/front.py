"""The outermost layer: every request gets its id, every answer carries it, every error becomes an object.

Owns what must hold for all routes. Knows nothing of any single one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from baton_common.errors import RequestFailed
from baton_common.logs import request_id_var
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import new_request_id
from baton_edge_api.answers import Answer, error_answer
from baton_edge_api.body import BodyRefused, ClientGone, declared_length, discard
from baton_edge_api.exchange import Exchange, choose_request_id
from baton_edge_api.metrics import Metrics

log = logging.getLogger(__name__)

_DISCARDED_BODY = 2 * 1024 * 1024
"""About so much of one that nobody reads is taken all the same: its sender then gets to read the answer."""
_SMALL_BODY = 64 * 1024
"""An unread body up to this size is skipped by the server; a larger one ends the connection."""


async def send_answer(send: Send, answer: Answer) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.all_headers()})
    await send({"type": "http.response.body", "body": answer.body})


class Front:
    def __init__(self, app: ASGIApp, metrics: Metrics, is_in_flight: Callable[[str], bool]) -> None:
        self._app = app
        self._metrics = metrics
        self._is_in_flight = is_in_flight

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        exchange, refused = self._open(scope)
        scope["baton.exchange"] = exchange
        request_id_var.set(exchange.request_id)
        id_header = (b"x-request-id", exchange.request_id.encode())

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                message["headers"] = [*message["headers"], *exchange.headers, id_header]
            await send(message)

        try:
            if refused:
                await self._fail(scope, receive, exchange, refused, send_with_id)
            else:
                await self._app(scope, receive, send_with_id)
        except ClientGone:
            exchange.status = 499
        except RequestFailed as failed:
            await self._fail(scope, receive, exchange, failed, send_with_id)
        except Exception:  # the boundary between one request and the edge
            log.exception("%s failed", scope["path"].split("/")[1:3])
            error = ErrorBody(
                code="internal_error", message="The edge failed on this request.", stop="edge_api"
            )
            await self._fail(scope, receive, exchange, RequestFailed(error), send_with_id)
        finally:
            self._metrics.answered(scope.get("baton.route", "other"), exchange.status or 499)

    def _open(self, scope: Scope) -> tuple[Exchange, RequestFailed | None]:
        refused: RequestFailed | None = None
        try:
            request_id, parent = choose_request_id(scope, self._is_in_flight)
        except RequestFailed as failed:
            request_id, parent, refused = new_request_id(), None, failed
        exchange = Exchange(request_id, scope.get("baton.first_byte") or time.time(), parent)
        if abort := scope.get("baton.abort"):
            exchange.abort = abort
        return exchange, refused

    async def _fail(
        self, scope: Scope, receive: Receive, exchange: Exchange, failed: RequestFailed, send: Send
    ) -> None:
        self._metrics.failed(failed.error.code, failed.error.stop)
        if exchange.status:
            exchange.abort()  # an answer has begun and can't be taken back
            return
        is_left = not (exchange.body_read or _is_small(scope) or isinstance(failed, BodyRefused))
        if is_left:
            await discard(scope, receive, _DISCARDED_BODY)
        close = is_left or isinstance(failed, BodyRefused)
        await send_answer(send, error_answer(failed.error, close=close))


def _is_small(scope: Scope) -> bool:
    if scope["method"] in ("GET", "HEAD"):
        return True
    length = declared_length(scope)
    return length is not None and length <= _SMALL_BODY
