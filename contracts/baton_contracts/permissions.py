"""Which subjects each service may use: the source of the NATS server's user permissions.

`publish` and `subscribe` are NATS permission lists. Replies to requests need no entry: the server's
`allow_responses` covers them. Each service has its own inbox prefix, so none can read another's replies.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_contracts.subjects import (
    BUCKET_BACKGROUND,
    BUCKET_BATCHES,
    BUCKET_KEYS,
    BUCKET_LIMITS,
    ROOT,
    STORE_FILES,
    STREAM_AFTER,
    STREAM_TRACE,
    Service,
)

_EVERY_PUBLISH = (f"{ROOT}.lease.*", f"{ROOT}.trace.*", f"{ROOT}.cancel.*", f"{ROOT}.reply.*.*")
_EVERY_SUBSCRIBE = (f"{ROOT}.lease.*", f"{ROOT}.cancel.*", "$SRV.>")


@dataclass(frozen=True)
class Permissions:
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox_prefix(user: str) -> str:
    return f"_INBOX_{user}"


def _bucket(name: str) -> tuple[str, ...]:
    """To make, read, write and watch a key-value bucket."""
    return (
        f"$KV.{name}.>",
        f"$JS.API.STREAM.*.KV_{name}",
        f"$JS.API.STREAM.MSG.GET.KV_{name}",
        f"$JS.API.CONSUMER.*.KV_{name}",
        f"$JS.API.CONSUMER.*.KV_{name}.>",
        f"$JS.API.DIRECT.GET.KV_{name}.>",
        f"$JS.ACK.KV_{name}.>",
        f"$JS.FC.KV_{name}.>",
    )


def _object_store(name: str) -> tuple[str, ...]:
    """To make, write and read an object store. STREAM.NAMES tells which streams there are, no more."""
    return (
        f"$O.{name}.>",
        f"$JS.API.STREAM.*.OBJ_{name}",
        f"$JS.API.STREAM.MSG.GET.OBJ_{name}",
        f"$JS.API.CONSUMER.*.OBJ_{name}",
        f"$JS.API.CONSUMER.*.OBJ_{name}.>",
        f"$JS.API.DIRECT.GET.OBJ_{name}.>",
        f"$JS.ACK.OBJ_{name}.>",
        f"$JS.FC.OBJ_{name}.>",
        "$JS.API.STREAM.NAMES",
    )


def _publishes(service: Service) -> tuple[str, ...]:
    table: dict[Service, tuple[str, ...]] = {
        "edge_api": (
            f"{ROOT}.prompt.*",
            f"{ROOT}.gateway.*",
            f"{ROOT}.after.conversation.*",
            f"{ROOT}.after.response.*",
            f"{ROOT}.after.usage.*",
            f"{ROOT}.ingest.*",
            f"{ROOT}.embed.*",
            f"{ROOT}.books.*",
            f"{ROOT}.console.*",
            f"{ROOT}.tokens.*.*",
            f"{ROOT}.resend.*.*",
            "$SRV.PING.*.*",
            "$JS.API.INFO",
            *_bucket(BUCKET_KEYS),
            *_bucket(BUCKET_LIMITS),
            *_bucket(BUCKET_BATCHES),
            *_bucket(BUCKET_BACKGROUND),
            *_object_store(STORE_FILES),
        ),
        "prompt_builder": (f"{ROOT}.guard.in.*", f"{ROOT}.embed.*", f"{ROOT}.books.*"),
        "embedder": (),
        "input_guardrails": (f"{ROOT}.gateway.*", f"{ROOT}.embed.*"),
        "llm_gateway": (
            f"{ROOT}.guard.out.*",
            f"{ROOT}.route.*",
            f"{ROOT}.frames.*.*.*",
            f"{ROOT}.after.usage.*",
            f"{ROOT}.embed.*",
            f"{ROOT}.resend.*.*",
        ),
        "inference_router": (f"{ROOT}.engine.*.*", f"{ROOT}.kv.ask.*", f"{ROOT}.tokens.*.*"),
        "engine_worker": (
            f"{ROOT}.frames.*.*.*",
            f"{ROOT}.replica.*.*",
            f"{ROOT}.kv.*",
            f"{ROOT}.after.usage.*",
        ),
        "output_guardrails": (f"{ROOT}.resend.*.*",),
        "after_answer": (
            "$JS.API.INFO",
            f"$JS.API.STREAM.*.{STREAM_AFTER}",
            f"$JS.API.CONSUMER.*.{STREAM_AFTER}",
            f"$JS.API.CONSUMER.*.{STREAM_AFTER}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_AFTER}.>",
            f"$JS.ACK.{STREAM_AFTER}.>",
        ),
        "trace_console": (
            "$JS.API.INFO",
            f"$JS.API.STREAM.*.{STREAM_TRACE}",
            f"$JS.API.STREAM.MSG.GET.{STREAM_TRACE}",
            f"$JS.API.DIRECT.GET.{STREAM_TRACE}",
            f"$JS.API.DIRECT.GET.{STREAM_TRACE}.>",
            f"$JS.API.CONSUMER.*.{STREAM_TRACE}",
            f"$JS.API.CONSUMER.*.{STREAM_TRACE}.>",
            f"$JS.API.CONSUMER.MSG.NEXT.{STREAM_TRACE}.>",
            f"$JS.ACK.{STREAM_TRACE}.>",
            f"$JS.FC.{STREAM_TRACE}.>",
        ),
    }
    return table[service]


def _subscribes(service: Service) -> tuple[str, ...]:
    table: dict[Service, tuple[str, ...]] = {
        "edge_api": (f"{ROOT}.reply.*.*", f"{ROOT}.replica.*.*"),
        "prompt_builder": (f"{ROOT}.prompt.*", f"{ROOT}.ingest.*"),
        "embedder": (f"{ROOT}.embed.*",),
        "input_guardrails": (f"{ROOT}.guard.in.*",),
        "llm_gateway": (
            f"{ROOT}.gateway.*",
            f"{ROOT}.frames.*.*.*",
            f"{ROOT}.replica.*.*",
            f"{ROOT}.resend.*.*",
        ),
        "inference_router": (f"{ROOT}.route.*", f"{ROOT}.replica.*.*", f"{ROOT}.kv.*"),
        "engine_worker": (
            f"{ROOT}.engine.*.*",
            f"{ROOT}.resend.*.*",
            f"{ROOT}.kv.ask.*",
            f"{ROOT}.tokens.*.*",
        ),
        "output_guardrails": (f"{ROOT}.guard.out.*", f"{ROOT}.frames.*.*.*", f"{ROOT}.resend.*.*"),
        "after_answer": (f"{ROOT}.books.*",),
        "trace_console": (f"{ROOT}.console.*", f"{ROOT}.replica.*.*"),
    }
    return table[service]


def of_service(service: Service) -> Permissions:
    inbox = f"{inbox_prefix(service)}.>"
    return Permissions(
        publish=(*_EVERY_PUBLISH, *_publishes(service)),
        subscribe=(inbox, *_EVERY_SUBSCRIBE, *_subscribes(service)),
    )
