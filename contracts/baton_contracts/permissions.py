"""What each service may use: the source of the NATS server's user permissions.

The relay's own subjects are those of its channels (registry.py), as sender or as receiver; here stands what
it needs of JetStream beside them. `publish` and `subscribe` are NATS permission lists. Replies to requests
need no entry: the server's `allow_responses` covers them. Each service has its own inbox prefix, so none can
read another's replies.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_contracts.registry import CHANNELS
from baton_contracts.subjects import (
    BUCKET_BACKGROUND,
    BUCKET_BATCHES,
    BUCKET_EVENTS,
    BUCKET_KEYS,
    BUCKET_LIMITS,
    STORE_FILES,
    STREAM_AFTER,
    STREAM_TRACE,
    Service,
)

_DISCOVERY = "$SRV.>"


@dataclass(frozen=True)
class Permissions:
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]


def inbox_prefix(user: str) -> str:
    return f"_INBOX_{user}"


def _of_stream(stream: str, contents: str) -> tuple[str, ...]:
    """To make, read and follow a stream, and to write `contents` to it."""
    return (
        contents,
        f"$JS.API.STREAM.*.{stream}",
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.CONSUMER.*.{stream}",
        f"$JS.API.CONSUMER.*.{stream}.>",
        f"$JS.API.DIRECT.GET.{stream}.>",
        f"$JS.ACK.{stream}.>",
        f"$JS.FC.{stream}.>",
    )


_BESIDE_CHANNELS: dict[Service, tuple[str, ...]] = {
    "edge_api": (
        "$SRV.PING.*.*",
        "$JS.API.INFO",
        *_of_stream(f"KV_{BUCKET_KEYS}", f"$KV.{BUCKET_KEYS}.>"),
        *_of_stream(f"KV_{BUCKET_LIMITS}", f"$KV.{BUCKET_LIMITS}.>"),
        *_of_stream(f"KV_{BUCKET_BATCHES}", f"$KV.{BUCKET_BATCHES}.>"),
        *_of_stream(f"KV_{BUCKET_BACKGROUND}", f"$KV.{BUCKET_BACKGROUND}.>"),
        *_of_stream(f"KV_{BUCKET_EVENTS}", f"$KV.{BUCKET_EVENTS}.>"),
        *_of_stream(f"OBJ_{STORE_FILES}", f"$O.{STORE_FILES}.>"),
        "$JS.API.STREAM.NAMES",  # an object store asks for it; it tells which streams there are, no more
    ),
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


def of_service(service: Service) -> Permissions:
    sent = [channel.pattern for channel in CHANNELS if service in channel.senders]
    heard = [
        channel.pattern
        for channel in CHANNELS
        if service in channel.receivers and channel.kind != "durable"  # those come by a consumer
    ]
    return Permissions(
        publish=(*dict.fromkeys(sent), *_BESIDE_CHANNELS.get(service, ())),
        subscribe=(f"{inbox_prefix(service)}.>", _DISCOVERY, *dict.fromkeys(heard)),
    )
