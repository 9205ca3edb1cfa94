"""Every subject of the relay. The request id is the last token of each that concerns a request.

Functions build a concrete subject; the `*_ALL` constants are the wildcards that a service listens on.
Names of services are those of the processes and of the queue groups.
"""

from __future__ import annotations

from typing import Literal

Service = Literal[
    "edge_api",
    "prompt_builder",
    "embedder",
    "input_guardrails",
    "llm_gateway",
    "inference_router",
    "engine_worker",
    "output_guardrails",
    "after_answer",
    "trace_console",
]

ROOT = "baton.v1"

PROMPT_ALL = f"{ROOT}.prompt.*"
GUARD_IN_ALL = f"{ROOT}.guard.in.*"
GATEWAY_ALL = f"{ROOT}.gateway.*"
GUARD_OUT_ALL = f"{ROOT}.guard.out.*"
ROUTE_ALL = f"{ROOT}.route.*"
CANCEL_ALL = f"{ROOT}.cancel.*"
EMBED_ALL = f"{ROOT}.embed.*"
INGEST_ALL = f"{ROOT}.ingest.*"
REPLICA_ALL = f"{ROOT}.replica.*.*"
LEASE_ALL = f"{ROOT}.lease.*"
KV_ALL = f"{ROOT}.kv.*"
BOOKS_ALL = f"{ROOT}.books.*"
CONSOLE_ALL = f"{ROOT}.console.*"
TRACE_ALL = f"{ROOT}.trace.*"
AFTER_ALL = f"{ROOT}.after.*.*"

STREAM_TRACE = "TRACE"
STREAM_AFTER = "AFTER"
BUCKET_KEYS = "baton_keys"
BUCKET_BATCHES = "baton_batches"
"""Batches, their finished lines, what is known of each file, and who runs batches now."""
BUCKET_BACKGROUND = "baton_background"
"""Responses that are made in the background, until their end is kept."""
BUCKET_EVENTS = "baton_background_events"
"""The events of those of them that are streamed, for a while after their end."""
STORE_FILES = "baton_files"
"""Object store: the contents of files."""
BUCKET_LIMITS = "baton_limits"


def prompt(request_id: str) -> str:
    return f"{ROOT}.prompt.{request_id}"


def guard_in(request_id: str) -> str:
    return f"{ROOT}.guard.in.{request_id}"


def gateway(request_id: str) -> str:
    return f"{ROOT}.gateway.{request_id}"


def guard_out(request_id: str) -> str:
    return f"{ROOT}.guard.out.{request_id}"


def route(request_id: str) -> str:
    return f"{ROOT}.route.{request_id}"


def engine(replica: str, request_id: str) -> str:
    return f"{ROOT}.engine.{replica}.{request_id}"


def engine_all(replica: str) -> str:
    return f"{ROOT}.engine.{replica}.*"


def frames(gateway_instance: str, guard_instance: str, request_id: str) -> str:
    return f"{ROOT}.frames.{gateway_instance}.{guard_instance}.{request_id}"


def frames_of_gateway(gateway_instance: str) -> str:
    return f"{ROOT}.frames.{gateway_instance}.*.*"


def frames_of_guard(guard_instance: str) -> str:
    return f"{ROOT}.frames.*.{guard_instance}.*"


def reply(edge_instance: str, request_id: str) -> str:
    return f"{ROOT}.reply.{edge_instance}.{request_id}"


def reply_all(edge_instance: str) -> str:
    return f"{ROOT}.reply.{edge_instance}.*"


BATCH = "batch"
"""In the place of a request id: frames of several requests in one message."""


def batch_of(subject: str) -> str:
    """Where a frame goes together with others that go to the same readers."""
    return f"{subject.rpartition('.')[0]}.{BATCH}"


def is_batch(subject: str) -> bool:
    return subject.endswith(f".{BATCH}")


def readers_of(subject: str) -> list[str]:
    """The instances that a subject of frames names: gateway and guard, or an edge."""
    return subject.split(".")[3:-1]


def resend(sender_instance: str, request_id: str) -> str:
    """Ask the sender of numbered frames for those that are missing."""
    return f"{ROOT}.resend.{sender_instance}.{request_id}"


def resend_all(sender_instance: str) -> str:
    return f"{ROOT}.resend.{sender_instance}.*"


def cancel(request_id: str) -> str:
    return f"{ROOT}.cancel.{request_id}"


def embed(request_id: str) -> str:
    return f"{ROOT}.embed.{request_id}"


def ingest(request_id: str) -> str:
    return f"{ROOT}.ingest.{request_id}"


def replica(model_token: str, replica_id: str) -> str:
    """`model_token` is `identifiers.subject_token(model)`: model names may contain dots."""
    return f"{ROOT}.replica.{model_token}.{replica_id}"


def kv(replica_id: str) -> str:
    return f"{ROOT}.kv.{replica_id}"


def kv_ask(replica_id: str) -> str:
    """Ask a replica to tell all its KV blocks again."""
    return f"{ROOT}.kv.ask.{replica_id}"


def lease(instance: str) -> str:
    return f"{ROOT}.lease.{instance}"


def books(request_id: str) -> str:
    """Questions to the ledger and the conversations."""
    return f"{ROOT}.books.{request_id}"


def console(request_id: str) -> str:
    """Pages and traces."""
    return f"{ROOT}.console.{request_id}"


def tokens(model_token: str, request_id: str) -> str:
    """What a prompt is in the model's tokens; `model_token` as for `replica`."""
    return f"{ROOT}.tokens.{model_token}.{request_id}"


def tokens_of_model(model_token: str) -> str:
    return f"{ROOT}.tokens.{model_token}.*"


def ping(service: Service, instance: str) -> str:
    """Calls one process by name, in the protocol of NATS micro; no responders: it is gone."""
    return f"$SRV.PING.{service}.{instance}"


def trace(request_id: str) -> str:
    return f"{ROOT}.trace.{request_id}"


def after(kind: str, request_id: str) -> str:
    return f"{ROOT}.after.{kind}.{request_id}"


def request_id_of(subject: str) -> str:
    return subject.rsplit(".", 1)[-1]
