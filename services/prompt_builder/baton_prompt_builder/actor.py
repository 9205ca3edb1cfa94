"""The inboxes: `PromptHandoff` in, `GuardInHandoff` out; `IngestQuery` in, `IngestReply` out."""

from __future__ import annotations

import sys

from baton_common.actor import Actor
from baton_common.context import RequestContext
from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_common.responder import Responder, ResponderLimits
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.handoffs import GuardInHandoff, PromptHandoff
from baton_contracts.prompt import ChatRequest, Message, Prompt
from baton_contracts.queries import IngestQuery, IngestReply
from baton_prompt_builder.assembly import (
    build_prompt,
    document_parts,
    last_question,
    offered_tools,
    raw_prompt,
    with_history,
    with_system_prompt,
    with_tools,
)
from baton_prompt_builder.history import stored_history
from baton_prompt_builder.library import Library
from baton_prompt_builder.ranking import Passage
from baton_prompt_builder.retrieval import Retriever, trace_labels
from baton_prompt_builder.settings import Settings
from baton_prompt_builder.stores.interface import StoreError
from baton_prompt_builder.trimming import trim

STOP_NUMBER = 3
_BYTES_AROUND = 256
"""More than what stands around the text of a message, a part or a call."""


class PromptBuilder:
    """Stacks system prompt, history, documents and question, in this order. A raw prompt stays as it is."""

    def __init__(self, settings: Settings, retriever: Retriever) -> None:
        self._settings = settings
        self._retriever = retriever

    async def handle(self, ctx: RequestContext, handoff: PromptHandoff) -> None:
        chat = handoff.chat
        if chat.rendering == "raw":
            await self._pass_on(ctx, handoff, raw_prompt(chat))
            return
        messages = await self._conversation(ctx, handoff)
        index = last_question(messages)
        question = messages[index].text if index is not None else ""
        tenant_id = ctx.envelope.tenant.tenant_id
        passages = await self._retriever.retrieve(
            ctx.request_id, tenant_id, chat.retrieval, question, ctx.spans
        )
        await self._pass_on(ctx, handoff, self._assemble(ctx, handoff, messages, passages))

    async def _pass_on(self, ctx: RequestContext, handoff: PromptHandoff, prompt: Prompt) -> None:
        self._check_size(handoff, prompt)
        await ctx.hand_on(
            subjects.guard_in(ctx.request_id),
            lambda envelope: GuardInHandoff(envelope=envelope, chat=handoff.chat, prompt=prompt),
            to="input_guardrails",
        )

    async def _conversation(self, ctx: RequestContext, handoff: PromptHandoff) -> tuple[Message, ...]:
        """What the client sent, after what is stored if it names a stored conversation."""
        chat = handoff.chat
        if not chat.continue_conversation:
            return with_system_prompt(chat.messages, self._settings.system_prompt)
        with ctx.spans.span("history") as span:
            history = await stored_history(ctx.node.bus, ctx.envelope, self._settings.books_seconds)
            span.set(num_messages=len(history))
        return with_system_prompt(with_history(history, chat.messages), self._settings.system_prompt)

    def _assemble(
        self,
        ctx: RequestContext,
        handoff: PromptHandoff,
        messages: tuple[Message, ...],
        passages: list[Passage],
    ) -> Prompt:
        settings = self._settings
        with ctx.spans.span("assemble") as span:
            answer_tokens = handoff.chat.sampling.max_tokens or settings.answer_tokens
            budget = settings.context_tokens - min(answer_tokens, settings.context_tokens // 2)
            num_extra = sum(len(part.text) for part in document_parts(passages)) if passages else 0
            num_extra += sum(tool.num_characters for tool in offered_tools(handoff.chat))
            if not handoff.chat.trim_history:
                budget = sys.maxsize
            trimmed = trim(messages, budget, settings.characters_per_token, num_extra)
            prompt = with_tools(build_prompt(trimmed.messages, passages), handoff.chat)
            span.set(
                num_messages=len(prompt.messages),
                num_tools=len(prompt.tools),
                num_characters=prompt.num_characters,
                trimmed_turns=trimmed.num_turns,
                chunks=trace_labels(passages),
            )
            ctx.attributes.update(num_chunks=len(passages), retrieval=handoff.chat.retrieval)
        return prompt

    def _check_size(self, handoff: PromptHandoff, prompt: Prompt) -> None:
        """Encoding twice would cost everybody; only what may come near the limit is measured."""
        limit = self._settings.max_handoff_bytes
        num_characters = handoff.chat.num_characters + prompt.num_characters
        num_pieces = _num_pieces(handoff.chat) + _num_pieces(prompt)
        if 16 * num_characters + _BYTES_AROUND * num_pieces < limit:
            return
        message = GuardInHandoff(envelope=handoff.envelope, chat=handoff.chat, prompt=prompt)
        if (num_bytes := len(message.encode())) > limit:
            text = f"The prompt takes {num_bytes} bytes on the bus; {limit} is the most. Send less text."
            raise RequestFailed.because("request_too_large", text, param="messages")


def _num_pieces(asked: ChatRequest | Prompt) -> int:
    """Each takes its bytes on the bus, however short its text is."""
    of_messages = sum(1 + len(one.parts) + len(one.tool_calls) for one in asked.messages)
    return of_messages + len(asked.tools) + len(asked.token_ids)


def prompt_actor(node: Node, builder: PromptBuilder) -> Actor[PromptHandoff]:
    return Actor(
        node,
        subject=subjects.PROMPT_ALL,
        message=PromptHandoff,
        handle=builder.handle,
        stop_number=STOP_NUMBER,
    )


def ingest_responder(node: Node, library: Library, settings: Settings) -> Responder[IngestQuery, IngestReply]:
    async def answer(_request_id: str, query: IngestQuery) -> IngestReply:
        try:
            change = await library.ingest(query, settings.ingest_embed_seconds)
        except StoreError as error:
            text = f"The document could not be stored: {error}. Try again shortly."
            body = ErrorBody(code="stop_unresponsive", message=text, retry_after_seconds=1)
            raise RequestFailed(body) from error
        return IngestReply(chunks=change.chunks, added=change.added, removed=change.removed)

    limits = ResponderLimits(concurrency=4, mailbox=32, answer_seconds=settings.ingest_embed_seconds + 30)
    return Responder(
        node,
        subject=subjects.INGEST_ALL,
        query=IngestQuery,
        reply=IngestReply,
        answer=answer,
        limits=limits,
    )
