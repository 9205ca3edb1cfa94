"""The routes, and the errors of routing itself.

Owns the table from path to endpoint. What all routes share is front's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from baton_contracts.errors import ErrorBody
from baton_edge_api.answers import Answer, error_answer
from baton_edge_api.batches.wiring import Offline
from baton_edge_api.embeddings import EmbeddingsEndpoint
from baton_edge_api.front import Front, send_answer
from baton_edge_api.metrics import Metrics
from baton_edge_api.relay_endpoint import RelayEndpoint
from baton_edge_api.responses.input_tokens import InputTokens
from baton_edge_api.responses.stored import StoredResponses
from baton_edge_api.side_endpoints import SideEndpoints

CHAT_PATH = "/v1/chat/completions"


def build_app(
    chat: RelayEndpoint,
    completions: RelayEndpoint,
    responses: RelayEndpoint,
    stored: StoredResponses,
    counting: InputTokens,
    embeddings: EmbeddingsEndpoint,
    offline: Offline,
    side: SideEndpoints,
    metrics: Metrics,
    is_in_flight: Callable[[str], bool],
) -> ASGIApp:
    routes = routes_of(chat, completions, responses, stored, counting, embeddings, offline, side)
    return Front(_Routes(routes, chat), metrics, is_in_flight)


def routes_of(
    chat: RelayEndpoint,
    completions: RelayEndpoint,
    responses: RelayEndpoint,
    stored: StoredResponses,
    counting: InputTokens,
    embeddings: EmbeddingsEndpoint,
    offline: Offline,
    side: SideEndpoints,
) -> list[Route]:
    """All of them are in the OpenAPI document."""
    return [
        Route(CHAT_PATH, chat, methods=["POST"]),
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/responses", responses, methods=["POST"]),
        Route("/v1/responses/input_tokens", counting, methods=["POST"]),
        Route("/v1/responses/{response_id}", stored.get),
        Route("/v1/responses/{response_id}", stored.delete, methods=["DELETE"]),
        Route("/v1/responses/{response_id}/cancel", stored.cancel, methods=["POST"]),
        Route("/v1/responses/{response_id}/input_items", stored.input_items),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/v1/files", offline.files.create, methods=["POST"]),
        Route("/v1/files", offline.files.list),
        Route("/v1/files/{file_id}", offline.files.get),
        Route("/v1/files/{file_id}", offline.files.delete, methods=["DELETE"]),
        Route("/v1/files/{file_id}/content", offline.files.content),
        Route("/v1/batches", offline.batches.create, methods=["POST"]),
        Route("/v1/batches", offline.batches.list),
        Route("/v1/batches/{batch_id}", offline.batches.get),
        Route("/v1/batches/{batch_id}/cancel", offline.batches.cancel, methods=["POST"]),
        Route("/v1/models", side.models),
        Route("/v1/models/{name:path}", side.model),
        Route("/v1/traces", side.traces),
        Route("/v1/traces/{request_id}", side.trace),
        Route("/v1/conversations/{conversation_id}", side.conversation),
        Route("/v1/usage", side.usage),
        Route("/v1/documents", side.add_document, methods=["POST"]),
        Route("/v1/documents", side.remove_document, methods=["DELETE"]),
        Route("/v1/documents/{source:path}", side.remove_document, methods=["DELETE"]),
        Route("/healthz", side.healthz),
        Route("/readyz", side.readyz),
        Route("/metrics", side.metrics_text),
        Route("/openapi.json", side.openapi_json),
        Route("/", side.page),
        Route("/ui", side.page),
        Route("/ui/{path:path}", side.page),
    ]


class _Routes:
    """Starlette's router behind a shortcut for the one path that must be fast."""

    def __init__(self, routes: list[Route], chat: RelayEndpoint) -> None:
        self._chat = chat
        self._methods: dict[str, set[str]] = {}
        for route in routes:
            self._methods.setdefault(route.path, set()).update(route.methods or ())
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == CHAT_PATH and scope["method"] == "POST":
            scope["baton.route"] = CHAT_PATH
            await self._chat(scope, receive, send)
            return
        scope["app"] = self  # the router then raises what it finds wrong
        try:
            await self._router(scope, receive, send)
        except HTTPException as raised:
            await send_answer(send, self._explain(scope, raised.status_code))
        finally:
            scope["baton.route"] = _pattern(scope)

    def _explain(self, scope: Scope, status: int) -> Answer:
        path, method = scope["path"][:128], scope["method"]
        if status == 405:
            allowed = ", ".join(sorted(self._methods.get(_pattern(scope), ())))
            text = f"{method} is not for {path}. Use {allowed}."
            answer = error_answer(ErrorBody(code="method_not_allowed", message=text))
            answer.headers.append((b"allow", allowed.encode()))
            return answer
        return error_answer(ErrorBody(code="not_found", message=f"There is nothing at {path}."))


def _pattern(scope: Scope) -> str:
    """The route's own path, so that a metric's labels are not the client's choice."""
    route: Any = scope.get("route")
    return route.path if route else "other"
