"""What the replicas say of themselves, heard on the bus: the last word of each."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from nats.aio.client import Client
from nats.aio.msg import Msg

from baton_cli.reconcile.evidence import newest
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS, ReplicaHeartbeat


async def replica_beats(client: Client) -> list[ReplicaHeartbeat]:
    """Of all that are not gone; listens for three intervals."""
    beats: list[ReplicaHeartbeat] = []

    async def note(message: Msg) -> None:
        with suppress(MalformedMessage):
            beats.append(ReplicaHeartbeat.decode(message.data))

    subscription = await client.subscribe(subjects.REPLICA_ALL, cb=note)
    await asyncio.sleep(3 * REPLICA_INTERVAL_SECONDS)
    await subscription.unsubscribe()
    return newest(beats)
