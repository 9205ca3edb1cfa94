"""The operator's own connection to the bus of a running system: what each service says it holds."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import nats

if TYPE_CHECKING:
    from tests.system.live_system import LiveSystem

_SILENCE_SECONDS = 0.2


def ask_stats(system: LiveSystem) -> dict[str, dict[str, int]]:
    """By service. Several processes of one are added up. May be called with or without a running loop."""
    return asyncio.run(_stats(system))


async def _stats(system: LiveSystem) -> dict[str, dict[str, int]]:
    answers = await request_many(system, "$SRV.STATS")
    found: dict[str, dict[str, int]] = {}
    for answer in answers:
        data = answer["endpoints"][0]["data"]
        counts = found.setdefault(answer["name"], {"held": 0, "cancellable": 0})
        for name in counts:
            counts[name] += data[name]
    return found


async def request_many(system: LiveSystem, subject: str) -> list[dict[str, Any]]:
    """Everybody's answer, until there is silence."""
    operator = system.operator()
    client = await nats.connect(
        operator["nats_url"], user=operator["user"], password=operator["password"], connect_timeout=5
    )
    try:
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        await client.publish(subject, b"", reply=inbox)
        answers: list[dict[str, Any]] = []
        while True:
            try:
                message = await subscription.next_msg(timeout=_SILENCE_SECONDS)
            except nats.errors.TimeoutError:
                return answers
            answers.append(json.loads(message.data))
    finally:
        await client.close()
