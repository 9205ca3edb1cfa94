"""JetStream's JSON API over any bus: streams and consumers are made as configured, states are read.

Owns the request, the error in the answer and the "make it if it is missing, change it if it differs" rule.
Knows no stream of Baton's: each service brings the configuration of its own. Storing a message is
`Bus.publish_durable`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from baton_common.bus import Bus
from baton_common.errors import BusError

API = "$JS.API"
_STREAM_NOT_FOUND = 10059
_SECONDS = 1_000_000_000


class JetStreamError(BusError):
    """The server answered with an error; `err_code` is JetStream's own number for it."""

    def __init__(self, subject: str, err_code: int, description: str) -> None:
        super().__init__(subject, f"{description} ({err_code})")
        self.err_code = err_code


@dataclass(frozen=True)
class StreamState:
    messages: int
    first_seq: int
    """Sequence of the oldest message still there; one past `last_seq` (or 0) when there is none."""
    last_seq: int


def nanoseconds(seconds: float) -> int:
    """JetStream's unit of time."""
    return int(seconds * _SECONDS)


async def call(bus: Bus, operation: str, body: dict[str, Any] | None = None, *, timeout: float = 5) -> Any:
    """One API request, `operation` without the API prefix. Raises JetStreamError, BusError."""
    subject = f"{API}.{operation}"
    payload = json.dumps(body).encode() if body is not None else b""
    answer = json.loads(await bus.request(subject, payload, timeout=timeout))
    if problem := answer.get("error"):
        raise JetStreamError(subject, problem.get("err_code", 0), problem.get("description", "refused"))
    return answer


async def ensure_stream(bus: Bus, config: dict[str, Any]) -> None:
    """Makes the stream of `config["name"]`, or changes it where it differs. What `config` leaves out stays
    as it is. Two processes may do this at once."""
    name = config["name"]
    try:
        present = (await call(bus, f"STREAM.INFO.{name}"))["config"]
    except JetStreamError as error:
        if error.err_code != _STREAM_NOT_FOUND:
            raise
        await call(bus, f"STREAM.CREATE.{name}", config)
        return
    if any(present.get(key) != value for key, value in config.items()):
        await call(bus, f"STREAM.UPDATE.{name}", present | config)


async def ensure_consumer(bus: Bus, stream: str, config: dict[str, Any]) -> None:
    """Makes or changes the durable consumer of `config["durable_name"]`."""
    name = config["durable_name"]
    body = {"stream_name": stream, "config": {"name": name, **config}}
    await call(bus, f"CONSUMER.CREATE.{stream}.{name}", body)


async def stream_state(bus: Bus, stream: str, *, timeout: float = 1) -> StreamState:
    state = (await call(bus, f"STREAM.INFO.{stream}", timeout=timeout))["state"]
    return StreamState(state["messages"], state["first_seq"], state["last_seq"])
