"""A prompt builder with its neighbours on one bus: a guard that keeps what it gets, an embedder and books
that can be there, be slow or be missing. Works on the memory bus and on real NATS alike."""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from baton_common.actor import Actor
from baton_common.bus import Bus, BusMessage
from baton_common.clock import Clock
from baton_common.context import RequestContext
from baton_common.handoff import hand_on
from baton_common.node import Node
from baton_common.responder import Responder
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Error, decode_frame
from baton_contracts.handoffs import GuardInHandoff, PromptHandoff
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import ChatRequest, Message
from baton_contracts.queries import (
    BooksQuery,
    BooksReply,
    EmbedQuery,
    EmbedReply,
    IngestQuery,
    IngestReply,
    StoredTurn,
)
from baton_contracts.spans import Span, SpanBatch
from baton_prompt_builder.settings import Settings
from baton_prompt_builder.wiring import wire
from tests.support.waiting import eventually

EDGE = "edge_api-00000001"


def word_vector(text: str, size: int = 384) -> tuple[float, ...]:
    """A unit vector in which each word (of more than three letters) has its own direction."""
    vector = [0.0] * size
    for word in text.lower().split():
        letters = "".join(letter for letter in word if letter.isalnum())
        if len(letters) > 3:
            vector[int.from_bytes(hashlib.sha256(letters.encode()).digest()[:4]) % size] += 1.0
    length = math.hypot(*vector)
    return tuple(x / length for x in vector) if length else (1.0, *vector[1:])


class FakeEmbedder:
    """Counts the texts it embeds; `hold` makes it wait, `error` makes it fail."""

    def __init__(self, bus: Bus, model: str = "words") -> None:
        self.node = Node(bus, "embedder")
        self.model = model
        self.texts: list[str] = []
        self.hold: asyncio.Event | None = None
        self.error: ErrorBody | None = None

    async def answer(self, _request_id: str, query: EmbedQuery) -> EmbedReply:
        if self.hold:
            await self.hold.wait()
        if self.error:
            return EmbedReply(error=self.error)
        self.texts += query.texts
        return EmbedReply(model=self.model, vectors=tuple(word_vector(text) for text in query.texts))

    async def start(self) -> None:
        responder = Responder(
            self.node, subject=subjects.EMBED_ALL, query=EmbedQuery, reply=EmbedReply, answer=self.answer
        )
        self.node.add(responder)
        await self.node.start()
        await self.node.become_ready()

    async def stop(self) -> None:
        if self.hold:
            self.hold.set()
        await self.node.drain(1)
        await self.node.stop()


class PromptStage:
    def __init__(self, bus: Bus, settings: Settings) -> None:
        self.bus = bus
        self.settings = settings
        self.node = Node(bus, "prompt_builder")
        self.guard = Node(bus, "input_guardrails")
        self.handed_on: asyncio.Queue[GuardInHandoff | ErrorBody] = asyncio.Queue()
        self.spans: dict[str, list[Span]] = {}
        self.asked_books: list[BooksQuery] = []

    async def keep(self, _ctx: RequestContext, handoff: GuardInHandoff) -> None:
        self.handed_on.put_nowait(handoff)

    def on_reply(self, message: BusMessage) -> None:
        frame = decode_frame(message.payload)
        if isinstance(frame, Error):
            self.handed_on.put_nowait(frame.error)

    def on_trace(self, message: BusMessage) -> None:
        batch = SpanBatch.decode(message.payload)
        self.spans.setdefault(batch.request_id, []).extend(
            span for span in batch.spans if span.service == "prompt_builder"
        )

    async def serve_books(self, *turns: StoredTurn, error: ErrorBody | None = None) -> Node:
        async def answer(_request_id: str, query: BooksQuery) -> BooksReply:
            self.asked_books.append(query)
            return BooksReply(turns=turns, error=error)

        node = Node(self.bus, "after_answer")
        node.add(
            Responder(node, subject=subjects.BOOKS_ALL, query=BooksQuery, reply=BooksReply, answer=answer)
        )
        await node.start()
        await node.become_ready()
        return node

    async def send(
        self, *messages: Message | str, tenant: str = "acme", **chat: Any
    ) -> GuardInHandoff | ErrorBody:
        """What the guard got, or the error the edge got."""
        request = ChatRequest.model_validate(
            {"model": "auto", "messages": [_as_message(message) for message in messages], **chat}
        )
        envelope = Envelope(
            request_id=new_request_id(),
            run_id="0" * 8,
            tenant=Tenant(tenant_id=tenant, key_id="key"),
            edge=EDGE,
            conversation_id="conv-1",
            deadline=time.time() + 30,
            sent_at=time.time(),
        )
        await hand_on(
            self.bus,
            Clock(),
            subjects.prompt(envelope.request_id),
            PromptHandoff(envelope=envelope, chat=request).encode,
            to="prompt_builder",
            deadline=envelope.deadline,
        )
        async with asyncio.timeout(20):
            return await self.handed_on.get()

    async def ask(self, *messages: Message | str, tenant: str = "acme", **chat: Any) -> GuardInHandoff:
        answer = await self.send(*messages, tenant=tenant, **chat)
        assert isinstance(answer, GuardInHandoff), answer
        return answer

    async def refused(self, *messages: Message | str, **chat: Any) -> ErrorBody:
        answer = await self.send(*messages, **chat)
        assert isinstance(answer, ErrorBody), answer
        return answer

    async def ingest(
        self, source: str, text: str, *, tenant: str = "acme", media: str = "text/markdown"
    ) -> IngestReply:
        query = IngestQuery.model_validate(
            {"tenant_id": tenant, "source": source, "text": text, "media_type": media}
        )
        payload = await self.bus.request(subjects.ingest(new_request_id()), query.encode(), timeout=30)
        return IngestReply.decode(payload)

    async def span(self, handoff: GuardInHandoff, name: str) -> Span:
        """Waits for the spans of that request, which follow the handoff."""
        request_id = handoff.envelope.request_id
        await eventually(
            lambda: any(span.name == "handle" for span in self.spans.get(request_id, [])), seconds=20
        )
        return next(span for span in self.spans[request_id] if span.name == name)


def sources(handoff: GuardInHandoff) -> list[str]:
    """File names of the chunks in the prompt, best first."""
    return [chunk.source.split(" > ")[0].split("/")[-1] for chunk in handoff.prompt.chunks]


def settings_for(home: Path, **changes: Any) -> Settings:
    return Settings(home=home, **({"seed_documents": False} | changes))


@asynccontextmanager
async def open_prompt_stage(
    settings: Settings, connect: Callable[[], Any]
) -> AsyncGenerator[PromptStage, None]:
    """`connect` is awaited for a bus."""
    bus = await connect()
    stage = PromptStage(bus, settings)
    subscriptions = [
        await bus.subscribe(subjects.reply_all(EDGE), stage.on_reply),
        await bus.subscribe(subjects.TRACE_ALL, stage.on_trace),
    ]
    guard_inbox = Actor(
        stage.guard, subject=subjects.GUARD_IN_ALL, message=GuardInHandoff, handle=stage.keep, stop_number=4
    )
    stage.guard.add(guard_inbox)
    await stage.guard.start()
    await stage.guard.become_ready()
    await stage.node.start()
    async with wire(settings)(stage.node, bus):
        await stage.node.become_ready()
        yield stage
        await stage.node.drain(2)
    await stage.node.stop()
    await stage.guard.stop()
    for subscription in subscriptions:
        await subscription.unsubscribe()


def _as_message(message: Message | str) -> Message:
    return message if isinstance(message, Message) else said("user", message)


def said(role: str, text: str) -> Message:
    return Message.model_validate({"role": role, "parts": [{"text": text}]})


def stored(turns: Sequence[tuple[str, str]]) -> list[StoredTurn]:
    """Question and answer of each turn."""
    return [
        StoredTurn.model_validate(
            {
                "request_id": new_request_id(),
                "model": "m",
                "asked": [{"role": "user", "content": asked}],
                "answer": answer,
                "cut_short": not answer,
                "created_at": 1.0,
            }
        )
        for asked, answer in turns
    ]
