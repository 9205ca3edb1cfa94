"""The input guardrails' neighbours, played: a prompt builder that hands on, a gateway that takes, an edge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from baton_common.actor import Actor
from baton_common.bus import Bus, BusMessage
from baton_common.context import RequestContext
from baton_common.node import Node
from baton_common.vault import Vault, new_key
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Error, decode_frame
from baton_contracts.handoffs import Ack, GatewayHandoff, GuardInHandoff
from baton_contracts.prompt import Chunk, Message, Origin, Part, Prompt, Role, Tool
from baton_contracts.spans import Span, SpanBatch
from baton_input_guardrails.config import InputConfig
from baton_input_guardrails.search import Analyser, PersonalDataSearch
from baton_input_guardrails.wiring import guard_actor
from tests.support.relay import eventually, make_chat, make_envelope, running_node

KEY = new_key()


def message(role: Role, *parts: tuple[str, Origin] | tuple[str, Origin, str]) -> Message:
    return Message(
        role=role,
        parts=tuple(
            Part(text=part[0], origin=part[1], chunk_id=part[2] if len(part) == 3 else None) for part in parts
        ),
    )


def user(text: str) -> Message:
    return message("user", (text, "client"))


def chunk(chunk_id: str, citation: int) -> Chunk:
    return Chunk(chunk_id=chunk_id, citation=citation, source=f"{chunk_id}.md", score=0.5)


@dataclass
class InBench:
    bus: Bus
    guard: Node
    taken: dict[str, GatewayHandoff] = field(default_factory=dict[str, GatewayHandoff])
    errors: dict[str, ErrorBody] = field(default_factory=dict[str, ErrorBody])
    spans: list[Span] = field(default_factory=list[Span])
    """The guardrails' own."""
    traced: set[str] = field(default_factory=set[str])

    async def _send(
        self,
        *messages: Message,
        chunks: tuple[Chunk, ...] = (),
        tools: tuple[Tool, ...] = (),
        **chat: Any,
    ) -> str:
        envelope = make_envelope(edge="edge_api-1")
        rid = envelope.request_id
        asked = tuple(one for one in messages if all(part.origin == "client" for part in one.parts))
        handoff = GuardInHandoff(
            envelope=envelope,
            chat=make_chat(messages=asked or messages[-1:], **chat),
            prompt=Prompt(
                messages=messages,
                chunks=chunks,
                tools=tools,
                rendering=chat.get("rendering", "chat"),
                token_ids=chat.get("token_ids", ()),
            ),
        )
        ack = Ack.decode(await self.bus.request(subjects.guard_in(rid), handoff.encode(), timeout=5))
        assert ack.verdict == "held"
        return rid

    async def passed(self, *messages: Message, **beside: Any) -> GatewayHandoff:
        rid = await self._send(*messages, **beside)
        await eventually(lambda: rid in self.traced and (rid in self.taken or rid in self.errors), seconds=20)
        assert rid not in self.errors, self.errors
        return self.taken[rid]

    async def refused(self, *messages: Message, **beside: Any) -> ErrorBody:
        rid = await self._send(*messages, **beside)
        await eventually(lambda: rid in self.traced and (rid in self.taken or rid in self.errors), seconds=20)
        assert rid not in self.taken, "it was handed on"
        return self.errors[rid]

    def span(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    @staticmethod
    def vault_of(handoff: GatewayHandoff) -> dict[str, str]:
        assert handoff.vault is not None
        return Vault(KEY).open(handoff.envelope.request_id, handoff.vault)


@asynccontextmanager
async def guard_in_bench(
    bus: Bus, analyser: Analyser, rules: dict[str, Any] | None = None
) -> AsyncIterator[InBench]:
    config = InputConfig.model_validate(rules or {})
    async with running_node(bus, "input_guardrails") as node, running_node(bus, "llm_gateway") as gateway:
        bench = InBench(bus, node)
        search = PersonalDataSearch(analyser)
        node.add(guard_actor(node, search, Vault(KEY), config))

        async def take(ctx: RequestContext, handoff: GatewayHandoff) -> None:
            bench.taken[ctx.request_id] = handoff

        gateway.add(
            Actor(gateway, subject=subjects.GATEWAY_ALL, message=GatewayHandoff, handle=take, stop_number=5)
        )

        def on_reply(raw: BusMessage) -> None:
            frame = decode_frame(raw.payload)
            if isinstance(frame, Error):
                bench.errors[frame.request_id] = frame.error

        def on_trace(raw: BusMessage) -> None:
            batch = SpanBatch.decode(raw.payload)
            if batch.spans[0].service == "input_guardrails":
                bench.spans.extend(batch.spans)
                bench.traced.add(batch.request_id)

        await bus.subscribe(subjects.reply_all("edge_api-1"), on_reply)
        await bus.subscribe(subjects.TRACE_ALL, on_trace)
        await node.become_ready()
        await gateway.become_ready()
        yield bench
        search.close()
