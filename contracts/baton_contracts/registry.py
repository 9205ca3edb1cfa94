"""The one table of channels: subject, message, answer, who sends, who receives. AsyncAPI, the
permissions and the conformance suite are made from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import TypeAdapter

from baton_contracts import frames, handoffs, heartbeats, kv_events, queries, records, spans, tokens
from baton_contracts.base import WireModel
from baton_contracts.subjects import BATCH, ROOT, Service

Kind = Literal["handoff", "frames", "broadcast", "request", "heartbeat", "events", "durable"]


@dataclass(frozen=True)
class Channel:
    name: str
    address: str
    """Subject with `{parameters}` where a token varies."""
    kind: Kind
    message: type[WireModel] | TypeAdapter[Any]
    message_name: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]
    reply: type[WireModel] | None = None
    note: str = ""

    @property
    def pattern(self) -> str:
        """The address as one subject with wildcards."""
        return ".".join(
            "*" if part.startswith("{") or part == BATCH else part for part in self.address.split(".")
        )


def _channel(
    name: str,
    address: str,
    kind: Kind,
    message: type[WireModel] | TypeAdapter[Any],
    senders: str,
    receivers: str,
    reply: type[WireModel] | None = None,
    note: str = "",
) -> Channel:
    message_name = "Frame" if isinstance(message, TypeAdapter) else message.__name__
    from_, to = tuple(senders.split()), tuple(receivers.split())
    return Channel(name, f"{ROOT}.{address}", kind, message, message_name, from_, to, reply, note)


_EVERY_SERVICE = " ".join(get_args(Service))
_FRAME: TypeAdapter[Any] = TypeAdapter(frames.Frame)


CHANNELS: tuple[Channel, ...] = (
    _channel(
        "prompt",
        "prompt.{requestId}",
        "handoff",
        handoffs.PromptHandoff,
        "edge_api",
        "prompt_builder",
        handoffs.Ack,
    ),
    _channel(
        "guardIn",
        "guard.in.{requestId}",
        "handoff",
        handoffs.GuardInHandoff,
        "prompt_builder",
        "input_guardrails",
        handoffs.Ack,
    ),
    _channel(
        "gateway",
        "gateway.{requestId}",
        "handoff",
        handoffs.GatewayHandoff,
        "input_guardrails edge_api",
        "llm_gateway",
        handoffs.Ack,
        "From the edge itself in plain gateway mode.",
    ),
    _channel(
        "guardOut",
        "guard.out.{requestId}",
        "handoff",
        handoffs.GuardOutHandoff,
        "llm_gateway",
        "output_guardrails",
        handoffs.Ack,
        "The ack's instance is the frames inbox; it is sent once that inbox is open.",
    ),
    _channel(
        "route",
        "route.{requestId}",
        "handoff",
        handoffs.RouteHandoff,
        "llm_gateway",
        "inference_router",
        handoffs.Ack,
        "The ack comes after a replica accepted; its instance is the replica.",
    ),
    _channel(
        "engine",
        "engine.{replica}.{requestId}",
        "handoff",
        handoffs.EngineHandoff,
        "inference_router",
        "engine_worker",
        handoffs.Ack,
        "The ack carries the queue length.",
    ),
    _channel(
        "frames",
        "frames.{gateway}.{guard}.{requestId}",
        "frames",
        _FRAME,
        "engine_worker llm_gateway",
        "output_guardrails llm_gateway",
        note="The gateway listens in. It sends here what comes from a cache or another server, the word "
        "that another engine took an answer over, and the error that ends one.",
    ),
    _channel(
        "reply",
        "reply.{edge}.{requestId}",
        "frames",
        _FRAME,
        "output_guardrails prompt_builder input_guardrails llm_gateway inference_router engine_worker",
        "edge_api",
        note="The filtered answer; any stop's error; held notes.",
    ),
    _channel(
        "framesTogether",
        f"frames.{{gateway}}.{{guard}}.{BATCH}",
        "frames",
        frames.FrameBatch,
        "engine_worker llm_gateway",
        "output_guardrails llm_gateway",
        note="Frames of several requests at one moment, where both leases say that it is understood.",
    ),
    _channel(
        "repliesTogether",
        f"reply.{{edge}}.{BATCH}",
        "frames",
        frames.FrameBatch,
        "output_guardrails llm_gateway",
        "edge_api",
        note="The same, for the filtered answers.",
    ),
    _channel(
        "resend",
        "resend.{sender}.{requestId}",
        "request",
        frames.Resend,
        "output_guardrails llm_gateway edge_api",
        "engine_worker output_guardrails llm_gateway",
        frames.Resent,
    ),
    _channel(
        "cancel",
        "cancel.{requestId}",
        "broadcast",
        frames.Cancel,
        "edge_api llm_gateway output_guardrails",
        _EVERY_SERVICE,
        frames.CancelAck,
        "Every holder of a part of the request answers.",
    ),
    _channel(
        "embed",
        "embed.{requestId}",
        "request",
        queries.EmbedQuery,
        "prompt_builder edge_api input_guardrails llm_gateway",
        "embedder",
        queries.EmbedReply,
    ),
    _channel(
        "ingest",
        "ingest.{requestId}",
        "request",
        queries.IngestQuery,
        "edge_api",
        "prompt_builder",
        queries.IngestReply,
    ),
    _channel(
        "books",
        "books.{requestId}",
        "request",
        queries.BooksQuery,
        "edge_api prompt_builder",
        "after_answer",
        queries.BooksReply,
    ),
    _channel(
        "console",
        "console.{requestId}",
        "request",
        queries.ConsoleQuery,
        "edge_api",
        "trace_console",
        queries.ConsoleReply,
    ),
    _channel(
        "replica",
        "replica.{model}.{replica}",
        "heartbeat",
        heartbeats.ReplicaHeartbeat,
        "engine_worker",
        "inference_router llm_gateway edge_api trace_console",
    ),
    _channel(
        "lease",
        "lease.{instance}",
        "heartbeat",
        heartbeats.Lease,
        _EVERY_SERVICE,
        _EVERY_SERVICE,
    ),
    _channel(
        "kv",
        "kv.{replica}",
        "events",
        kv_events.KvEvents,
        "engine_worker",
        "inference_router",
        note="One a step at most. A gap in seq: ask on kv.ask.REPLICA.",
    ),
    _channel(
        "kvAsk",
        "kv.ask.{replica}",
        "request",
        kv_events.KvAsk,
        "inference_router",
        "engine_worker",
        kv_events.KvAskReply,
        "All blocks are told again on kv.REPLICA, in the same numbering.",
    ),
    _channel(
        "tokens",
        "tokens.{model}.{requestId}",
        "request",
        tokens.TokensQuery,
        "inference_router edge_api",
        "engine_worker",
        tokens.TokensReply,
        "Queue group of the model's ready replicas.",
    ),
    _channel(
        "trace",
        "trace.{requestId}",
        "durable",
        spans.SpanBatch,
        _EVERY_SERVICE,
        "trace_console",
        note="JetStream TRACE.",
    ),
    _channel(
        "afterUsage",
        "after.usage.{requestId}",
        "durable",
        records.UsageRecord,
        "llm_gateway edge_api engine_worker",
        "after_answer",
        note="JetStream AFTER, work queue, explicit ack. The edge stores those of embeddings, the engine "
        "worker stand-ins.",
    ),
    _channel(
        "afterConversation",
        "after.conversation.{requestId}",
        "durable",
        records.ConversationRecord,
        "edge_api",
        "after_answer",
        note="JetStream AFTER, work queue, explicit ack.",
    ),
    _channel(
        "afterResponse",
        "after.response.{requestId}",
        "durable",
        records.ResponseRecord,
        "edge_api",
        "after_answer",
        note="JetStream AFTER, work queue, explicit ack.",
    ),
)
