"""An endpoint that the relay answers: from HTTP to a request on the relay.

Owns the order of the checks (key, seat, body, validation, limits) and what the envelope says. What a body
means is its reader's; the way of the answer is relay_answer's.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Receive, Scope, Send

from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameQueue
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.limits import Run
from baton_edge_api.body import read_body
from baton_edge_api.cache_control import TTL_HEADER, cache_wish
from baton_edge_api.exchange import Exchange, exchange_of, header, inside_of, listed_header
from baton_edge_api.limits.asked import Asked
from baton_edge_api.limits.prompt_count import count_all
from baton_edge_api.question import Question
from baton_edge_api.relay_answer import RelayAnswer, RelayParts
from baton_edge_api.request_trace import RequestTrace
from baton_edge_api.typed_body import parsed, understood

Read = Callable[[object], Question]
"""What the JSON of a body asks for. Pure, maybe slow. Raises RequestFailed, naming the parameter."""
Complete = Callable[[Question, Tenant, str], Awaitable[Question]]
"""Adds what must be asked for, given the tenant and the request id. Raises RequestFailed."""
SetAside = Callable[[Question, Tenant, Exchange], Awaitable[ASGIApp | None]]
"""What a client gets at once whose question is answered later; None: it is answered now. May raise
RequestFailed."""


class RelayEndpoint:
    def __init__(
        self,
        parts: RelayParts,
        read: Read,
        complete: Complete | None = None,
        set_aside: SetAside | None = None,
    ) -> None:
        self._parts = parts
        self._read_json = read
        self._complete = complete
        self._set_aside = set_aside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        parts = self._parts
        tenant = parts.ring.caller_of(scope)
        request_id = exchange_of(scope).request_id
        with parts.desk.seat(request_id) as queue, parts.metrics.in_flight.track_inprogress():
            at_once = await self._serve(scope, receive, send, tenant, queue)
        if at_once:  # the seat is free for the answer that was promised
            await at_once(scope, receive, send)

    async def _serve(
        self, scope: Scope, receive: Receive, send: Send, tenant: Tenant, queue: FrameQueue
    ) -> ASGIApp | None:
        """None: it was answered by the relay. Raises RequestFailed."""
        parts, exchange = self._parts, exchange_of(scope)
        trace = RequestTrace(parts.desk.node, exchange.started, exchange.parent_span_id)
        try:
            question = await self._read(scope, receive, exchange, trace, tenant)
            if self._complete:
                question = await self._complete(question, tenant, exchange.request_id)
            set_aside = None if inside_of(scope) else self._set_aside
            if set_aside and (at_once := await set_aside(question, tenant, exchange)):
                return at_once
            run = _run(tenant, exchange, question)
            grant = await parts.admission.admit(tenant, self._asked(question, run), exchange)
        except RequestFailed as failed:
            await self._trace_refusal(exchange, tenant, trace, failed)
            raise
        try:
            envelope = self._envelope(scope, run, tenant, question, trace)
            answer = RelayAnswer(parts, exchange, envelope, question, queue, trace, send, grant)
            parts.desk.can_be_ended(envelope.request_id, answer.trip)
            await answer.run(receive)
        finally:
            await grant.release(may_cost=True)  # neither settled nor refused: a fault of ours, or cut off
        return None

    def _asked(self, question: Question, run: Run) -> Asked:
        chat, parts = question.chat, self._parts
        chats = (chat, *question.more_requests)
        return Asked(
            chat.model,
            lambda: count_all(
                parts.desk.node.bus, run.request_id, chats, parts.admission.tokenizer_of(chat.model)
            ),
            run,
            max_output_tokens=chat.sampling.max_tokens,
            num_answers=question.num_answers,
        )

    async def _read(
        self, scope: Scope, receive: Receive, exchange: Exchange, trace: RequestTrace, tenant: Tenant
    ) -> Question:
        try:
            return await self._read_body(scope, receive, exchange, trace)
        except RequestFailed:
            self._parts.admission.show(tenant, exchange)
            raise

    async def _read_body(
        self, scope: Scope, receive: Receive, exchange: Exchange, trace: RequestTrace
    ) -> Question:
        settings = self._parts.settings
        body = await read_body(scope, receive, limit=settings.max_body_bytes, seconds=settings.body_timeout)
        exchange.body_read = True
        trace.body_read(len(body))
        question = await understood(body, self._understand)
        if inside := inside_of(scope):
            question = question.made_inside(inside)
        wish = cache_wish(listed_header(scope, b"cache-control"), header(scope, TTL_HEADER))
        return question.with_chat(**wish.fields) if wish and wish.fields else question

    def _understand(self, body: bytes) -> Question:
        question = self._read_json(parsed(body))
        if self._parts.settings.plain_gateway:
            _check_plain(question)
        return question

    def _envelope(
        self, scope: Scope, run: Run, tenant: Tenant, question: Question, trace: RequestTrace
    ) -> Envelope:
        now, inside = trace.wall(), inside_of(scope)
        deadline = now + self._parts.settings.request_timeout
        return Envelope(
            request_id=run.request_id,
            run_id=run.run_id,
            tenant=tenant,
            edge=self._parts.desk.node.instance,
            conversation_id=question.conversation_id or f"conv-{secrets.token_hex(12)}",
            deadline=inside.promise.deadline if inside and inside.promise else deadline,
            sent_at=now,
            parent_span_id=trace.root_id,
        )

    async def _trace_refusal(
        self, exchange: Exchange, tenant: Tenant, trace: RequestTrace, failed: RequestFailed
    ) -> None:
        trace.failed(failed.error)
        await trace.close(exchange.request_id, tenant.tenant_id, status="error", last_byte=trace.wall())


def _run(tenant: Tenant, exchange: Exchange, question: Question) -> Run:
    num_requests = 1 + len(question.more_requests)
    return Run(tenant.tenant_id, exchange.request_id, secrets.token_hex(4), num_requests)


def _check_plain(question: Question) -> None:
    """What the stops do that a plain gateway leaves out. Raises RequestFailed."""
    chat = question.chat
    named = ("conversation_id", chat.continue_conversation), ("retrieval", chat.retrieval == "on")
    for param, is_asked in named:
        if is_asked:
            text = f"{param}: a plain gateway has no stored conversations or documents. Leave it out."
            raise RequestFailed.because("unsupported_parameter", text, stop="edge_api", param=param)
