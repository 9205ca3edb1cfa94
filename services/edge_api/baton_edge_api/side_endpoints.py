"""Every route but the chat: models, health, metrics, traces, conversations, usage, documents, pages.

Each is a short translation between HTTP and one question. Owns who may ask: all of /v1 needs a key, the
rest doesn't.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from starlette.requests import Request
from starlette.responses import Response

from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import parse_request_id, request_ids_of
from baton_contracts.openai_completions import MAX_PROMPTS
from baton_contracts.openai_requests import DocumentRequest
from baton_contracts.queries import (
    BooksQuery,
    BooksReply,
    ConsoleQuery,
    ConsoleReply,
    IngestQuery,
    IngestReply,
)
from baton_edge_api.answers import NO_STORE, Answer, HeaderList, error_object, json_answer, retry_headers
from baton_edge_api.body import read_body
from baton_edge_api.embedders import EmbedderBoard
from baton_edge_api.exchange import exchange_of
from baton_edge_api.keys import KeyRing
from baton_edge_api.metrics import CONTENT_TYPE, Metrics
from baton_edge_api.readiness import PLAIN, RELAY, missing_parts
from baton_edge_api.replicas import ReplicaBoard, ServedModel
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.side_questions import ask
from baton_edge_api.typed_body import parsed, typed, understood
from baton_edge_api.usage_question import sums_object, sums_query

_TRACES_ASKED = ("limit", "status", "since", "until", "page")
_MAX_TRACES_TEXT = 40
"""Of each: the console says what is wrong with one that was cut."""
_CONVERSATION = re.compile(r"[A-Za-z0-9_-]{1,64}")

PAGE_HEADERS: HeaderList = [
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; "
        b"form-action 'self'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]


def to_response(answer: Answer) -> Response:
    response = Response(answer.body, status_code=answer.status)
    response.raw_headers = answer.all_headers()
    return response


def _model_card(model: ServedModel) -> dict[str, Any]:
    card: dict[str, Any] = {
        "id": model.name,
        "object": "model",
        "created": model.since,
        "owned_by": model.owned_by,
    }
    card |= {"max_model_len": model.context_length} if model.context_length else {}
    return card | ({"task": model.task} if model.task else {})


@dataclass(frozen=True)
class SideEndpoints:
    node: Node
    ring: KeyRing
    replicas: ReplicaBoard
    embedders: EmbedderBoard
    metrics: Metrics
    settings: EdgeSettings
    openapi: bytes

    # Without a key

    async def healthz(self, request: Request) -> Response:
        return to_response(json_answer({"status": "alive"}))

    async def readyz(self, request: Request) -> Response:
        relay = PLAIN if self.settings.plain_gateway else RELAY
        missing = await missing_parts(self.node, self.ring, self.replicas, relay)
        if not missing:
            return to_response(json_answer({"status": "ready", "missing": []}))
        text = f"A question would not be answered now. Missing: {', '.join(missing)}."
        error = ErrorBody(code="no_responder", message=text, retry_after_seconds=1)
        body = orjson.dumps({"status": "not ready", "missing": missing} | error_object(error))
        return to_response(Answer(503, body, [NO_STORE, *retry_headers(1)]))

    async def metrics_text(self, request: Request) -> Response:
        return to_response(Answer(200, self.metrics.text(), [NO_STORE], CONTENT_TYPE))

    async def openapi_json(self, request: Request) -> Response:
        return to_response(Answer(200, self.openapi))

    async def page(self, request: Request) -> Response:
        reply = await self._console(request, request.url.path, None)
        body, media_type = reply.body.encode(), reply.media_type.encode("ascii", "ignore")
        return to_response(Answer(reply.status, body, PAGE_HEADERS, media_type))

    # With a key

    def _tenant(self, request: Request) -> Tenant:
        return self.ring.caller_of(request.scope)

    def _served(self, tenant: Tenant) -> list[ServedModel]:
        """Those that the key may ask for."""
        served, allowed = self.replicas.models() + self.embedders.models(), self.ring.models_of(tenant.key_id)
        return [model for model in served if not allowed or model.name in allowed]

    async def models(self, request: Request) -> Response:
        cards = [_model_card(model) for model in self._served(self._tenant(request))]
        return to_response(json_answer({"object": "list", "data": cards}))

    async def model(self, request: Request) -> Response:
        tenant, wanted = self._tenant(request), request.path_params["name"]
        for model in self._served(tenant):
            if model.name == wanted:
                return to_response(json_answer(_model_card(model)))
        text = "No such model is served now. GET /v1/models lists those that are."
        raise RequestFailed.because("model_not_found", text, param="model")

    async def traces(self, request: Request) -> Response:
        given = request.query_params
        asked = urlencode({name: given[name][:_MAX_TRACES_TEXT] for name in _TRACES_ASKED if name in given})
        return await self._trace(request, f"/v1/traces?{asked}" if asked else "/v1/traces")

    async def trace(self, request: Request) -> Response:
        self._tenant(request)
        wanted = _request_id(request.path_params["request_id"], "id")
        return await self._trace(request, f"/v1/traces/{wanted}")

    async def _trace(self, request: Request, path: str) -> Response:
        reply = await self._console(request, path, self._tenant(request))
        return to_response(Answer(reply.status, reply.body.encode(), [NO_STORE], reply.media_type.encode()))

    async def conversation(self, request: Request) -> Response:
        tenant, wanted = self._tenant(request), request.path_params["conversation_id"]
        if not _CONVERSATION.fullmatch(wanted):
            text = "A conversation id has 1 to 64 letters, digits, - or _."
            raise RequestFailed.because("invalid_value", text, param="conversation_id")
        query = BooksQuery(kind="conversation", tenant_id=tenant.tenant_id, conversation_id=wanted)
        reply = await self._books(request, query)
        if not reply.turns:
            raise RequestFailed.because(
                "not_found", "There is no such conversation.", param="conversation_id"
            )
        turns = [turn.model_dump(mode="json") for turn in reply.turns]
        return to_response(json_answer({"object": "conversation", "id": wanted, "turns": turns}))

    async def usage(self, request: Request) -> Response:
        tenant = self._tenant(request)
        params = request.query_params
        asked, of_many = params.get("request_id"), "by" in params
        wanted = "" if of_many and asked is None else _request_id(asked or "", "request_id")
        if of_many:
            query = sums_query(tenant.tenant_id, params)
            return to_response(json_answer(sums_object(await self._books(request, query))))
        ids = request_ids_of(wanted, MAX_PROMPTS)
        query = BooksQuery(
            kind="usage", tenant_id=tenant.tenant_id, request_id=wanted, more_request_ids=ids[1:]
        )
        reply = await self._books(request, query)
        found = sorted(reply.usage, key=lambda row: ids.index(row.request_id))  # prompt after prompt
        rows = [row.model_dump(mode="json") for row in found]
        return to_response(json_answer({"object": "list", "data": rows}))

    async def add_document(self, request: Request) -> Response:
        tenant = self._tenant(request)
        body = await read_body(
            request.scope,
            request.receive,
            limit=self.settings.max_body_bytes,
            seconds=self.settings.body_timeout,
        )
        exchange_of(request.scope).body_read = True
        document = await understood(body, lambda given: typed(DocumentRequest, parsed(given)))
        query = IngestQuery(
            tenant_id=tenant.tenant_id,
            source=document.source,
            media_type=document.media_type,
            text=document.text,
        )
        reply = await self._ingest(request, query)
        counts = {"chunks": reply.chunks, "added": reply.added, "removed": reply.removed}
        return to_response(json_answer({"object": "document", "source": document.source} | counts))

    async def remove_document(self, request: Request) -> Response:
        tenant = self._tenant(request)
        source = request.path_params.get("source") or request.query_params.get("source", "")
        if not 1 <= len(source) <= 512:
            text = "Name the document: DELETE /v1/documents?source=NAME, at most 512 characters."
            raise RequestFailed.because("missing_required_parameter", text, param="source")
        reply = await self._ingest(request, IngestQuery(tenant_id=tenant.tenant_id, source=source, text=""))
        answer = {"object": "document.deleted", "source": source, "deleted": True, "removed": reply.removed}
        return to_response(json_answer(answer))

    # Questions

    async def _console(self, request: Request, path: str, tenant: Tenant | None) -> ConsoleReply:
        if len(path) > 512:
            raise RequestFailed.because("not_found", "There is no such page.")
        return await ask(
            self.node.bus,
            subjects.console(exchange_of(request.scope).request_id),
            ConsoleQuery(path=path, tenant=tenant),
            ConsoleReply,
            to="trace_console",
            seconds=self.settings.query_timeout,
        )

    async def _books(self, request: Request, query: BooksQuery) -> BooksReply:
        return await ask(
            self.node.bus,
            subjects.books(exchange_of(request.scope).request_id),
            query,
            BooksReply,
            to="after_answer",
            seconds=self.settings.query_timeout,
        )

    async def _ingest(self, request: Request, query: IngestQuery) -> IngestReply:
        return await ask(
            self.node.bus,
            subjects.ingest(exchange_of(request.scope).request_id),
            query,
            IngestReply,
            to="prompt_builder",
            seconds=self.settings.ingest_timeout,
        )


def _request_id(raw: str, param: str) -> str:
    parsed = parse_request_id(raw)
    if parsed is None:
        text = f"{param} must be a request id: 32 hex digits or a UUID."
        raise RequestFailed.because("invalid_value", text, param=param)
    return parsed
