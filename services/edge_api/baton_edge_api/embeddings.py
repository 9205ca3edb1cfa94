"""POST /v1/embeddings: texts or token ids to vectors, by questions to the embedder.

Owns how a request of many inputs is split, what happens when its client leaves, and its ledger row: one a
request, whatever became of it. What a vector looks like to the client is vectors'.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson
from starlette.types import Receive, Scope, Send

from baton_common.errors import RequestFailed
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Usage
from baton_contracts.heartbeats import EmbeddingModel
from baton_contracts.limits import Run
from baton_contracts.openai_embeddings import EmbeddingRequest
from baton_contracts.queries import EmbedQuery, EmbedReply
from baton_contracts.records import Outcome, UsageRecord
from baton_edge_api.actor import Desk
from baton_edge_api.answers import NO_STORE, Answer, HeaderList
from baton_edge_api.body import ClientGone, read_body
from baton_edge_api.embedder_call import EmbedderCall
from baton_edge_api.embedders import EmbedderBoard
from baton_edge_api.embedding_questions import questions, read_embeddings
from baton_edge_api.exchange import Exchange, exchange_of
from baton_edge_api.front import send_answer
from baton_edge_api.interruption import Interrupt, Interrupted, Interruption
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.admission import Admission
from baton_edge_api.limits.asked import Asked
from baton_edge_api.limits.prompt_count import estimate_text
from baton_edge_api.metrics import Metrics
from baton_edge_api.record_log import RecordLog
from baton_edge_api.request_trace import RequestTrace
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.vectors import embedding_object

_QUESTIONS_AT_ONCE = 2


@dataclass(frozen=True)
class EmbeddingParts:
    desk: Desk
    ring: KeyRing
    embedders: EmbedderBoard
    embedder: EmbedderCall
    records: RecordLog
    admission: Admission
    metrics: Metrics
    settings: EdgeSettings


@dataclass
class _Work:
    """One request, as far as it has come."""

    exchange: Exchange
    tenant: Tenant
    wire: EmbeddingRequest
    ignored: tuple[str, ...]
    model: EmbeddingModel
    run: Run
    vectors: list[tuple[float, ...]] = field(default_factory=list[tuple[float, ...]])
    prompt_tokens: int = 0


class EmbeddingsEndpoint:
    def __init__(self, parts: EmbeddingParts) -> None:
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = self._parts
        exchange = exchange_of(scope)
        tenant = parts.ring.caller_of(scope)
        trace = RequestTrace(parts.desk.node, exchange.started, exchange.parent_span_id)
        with parts.desk.seat(exchange.request_id), parts.metrics.in_flight.track_inprogress():
            status = "error"
            try:
                work = await self._read(scope, receive, exchange, tenant, trace)
                grant = await parts.admission.admit(tenant, _asked(work), exchange)
                try:
                    await self._run(work, receive, trace)
                finally:
                    if work.prompt_tokens:
                        await grant.settle(Usage(prompt_tokens=work.prompt_tokens), work.model.name)
                    await grant.release()
                answer = await asyncio.to_thread(_whole_answer, work)
                await send_answer(send, answer)
                status = "ok"
            except RequestFailed as failed:
                trace.failed(failed.error)
                raise
            finally:
                await trace.close(
                    exchange.request_id, tenant.tenant_id, status=status, last_byte=trace.wall()
                )

    async def _read(
        self, scope: Scope, receive: Receive, exchange: Exchange, tenant: Tenant, trace: RequestTrace
    ) -> _Work:
        settings = self._parts.settings
        body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_timeout)
        exchange.body_read = True
        trace.body_read(len(body))
        wire, ignored = await asyncio.to_thread(
            read_embeddings, body, strict=settings.strict, max_text_chars=settings.max_text_chars
        )
        model = self._parts.embedders.named(wire.model)
        if wire.dimensions and wire.dimensions > model.dimensions:
            text = f"dimensions: {model.name} has {model.dimensions}. Ask for at most that."
            raise RequestFailed.because("invalid_value", text, param="dimensions")
        if wire.truncate_prompt_tokens is not None and -1 < wire.truncate_prompt_tokens < model.max_tokens:
            text = f"truncate_prompt_tokens: -1, or all {model.max_tokens} that {model.name} reads."
            raise RequestFailed.because("invalid_value", text, param="truncate_prompt_tokens")
        run = Run(tenant.tenant_id, exchange.request_id, secrets.token_hex(4))
        return _Work(exchange, tenant, wire, ignored, model, run)

    async def _run(self, work: _Work, receive: Receive, trace: RequestTrace) -> None:
        trace.admitted(model=work.model.name, inputs=len(work.wire.input))
        trace.handed_on("embedder")
        started, outcome, code = trace.wall(), "error", "internal_error"
        try:
            async with _deadline(self._parts.settings.request_timeout):
                await self._while_listening(work, receive)
            outcome, code = "finished", None
        except ClientGone:
            outcome, code = "cancelled", None
            raise
        except RequestFailed as failed:
            code = failed.error.code
            raise
        finally:
            await self._book(work, outcome, code, started, trace.wall())

    async def _while_listening(self, work: _Work, receive: Receive) -> None:
        """Raises ClientGone when the client leaves, RequestFailed when this process must end."""
        interruption = Interruption()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            error = ErrorBody(code="client_closed_request", message="The client left.")
            interruption.trip(Interrupt(error, "client_disconnected"))

        self._parts.desk.can_be_ended(work.exchange.request_id, interruption.trip)
        watching = asyncio.create_task(watch())
        try:
            async with interruption:
                await self._embed(work)
        except Interrupted as interrupted:
            if interrupted.interrupt.cancel == "client_disconnected":
                raise ClientGone from None
            raise RequestFailed(interrupted.interrupt.error) from None
        finally:
            watching.cancel()

    async def _embed(self, work: _Work) -> None:
        """Vectors in the order of the inputs; a few questions at a time."""
        turns = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

        async def one(query: EmbedQuery) -> EmbedReply:
            async with turns:
                reply = await self._ask(work, query)
            work.prompt_tokens += reply.prompt_tokens
            return reply

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(query)) for query in questions(work.wire, work.model)]
        except* RequestFailed as failures:
            raise _first(failures) from None
        work.vectors = [vector for task in tasks for vector in task.result().vectors]

    async def _ask(self, work: _Work, query: EmbedQuery) -> EmbedReply:
        seconds = self._parts.settings.embed_timeout
        reply = await self._parts.embedder(work.exchange.request_id, query, seconds)
        wanted = len(query.texts) or len(query.token_ids)
        if len(reply.vectors) != wanted or reply.model != work.model.name:
            text = f"embedder gave {len(reply.vectors)} vectors of {reply.model} for {wanted} inputs."
            raise RequestFailed.because("upstream_error", text, stop="embedder")
        return reply

    async def _book(
        self, work: _Work, outcome: Outcome, code: str | None, began: float, ended: float
    ) -> None:
        """Tokens that the embedder has computed are counted even if the answer came to nothing."""
        record = UsageRecord(
            request_id=work.exchange.request_id,
            run_id=work.run.run_id,
            attempt=1,
            tenant=work.tenant,
            model=work.model.name,
            replica="embedder",
            usage=Usage(prompt_tokens=work.prompt_tokens),
            outcome=outcome,
            finish_reason="stop" if outcome == "finished" else None,
            error_code=code,
            started_at=began,
            ended_at=ended,
        )
        self._parts.metrics.embedded(work.model.name, work.prompt_tokens)
        await self._parts.records.keep_usage(record, self._parts.settings.record_seconds)


def _asked(work: _Work) -> Asked:
    async def count() -> int:
        """Texts by their characters, on the high side: only the embedder could say it exactly."""
        inputs = work.wire.input
        return sum(estimate_text(one) if isinstance(one, str) else len(one) for one in inputs)

    return Asked(work.wire.model, count, work.run, max_output_tokens=0, answered_by=work.model.name)


def _whole_answer(work: _Work) -> Answer:
    wire, used = work.wire, work.prompt_tokens
    form = wire.encoding_format or "float"
    data = [
        embedding_object(index, vector, wire.dimensions, form) for index, vector in enumerate(work.vectors)
    ]
    usage = {"prompt_tokens": used, "total_tokens": used}
    value = {"object": "list", "data": data, "model": work.model.name, "usage": usage}
    headers: HeaderList = [NO_STORE, (b"x-baton-model", work.model.name.encode("ascii", "replace"))]
    if work.ignored:
        headers.append((b"x-baton-ignored-parameters", ",".join(work.ignored).encode()))
    return Answer(200, orjson.dumps(value), headers)


def _first(failures: BaseExceptionGroup[RequestFailed]) -> RequestFailed:
    found = failures.exceptions[0]
    return found if isinstance(found, RequestFailed) else _first(found)


@asynccontextmanager
async def _deadline(seconds: float) -> AsyncGenerator[None, None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        text = f"The answer was not complete within {seconds:g} s. Send fewer inputs at once."
        error = ErrorBody(code="deadline_exceeded", message=text, stop="embedder")
        raise RequestFailed(error) from None
