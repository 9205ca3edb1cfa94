"""The router's process: wiring only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.actor import Actor
from baton_common.bus import Bus, BusMessage
from baton_common.intake import InboxLimits
from baton_common.node import Node
from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_contracts import subjects
from baton_contracts.handoffs import RouteHandoff
from baton_contracts.heartbeats import REPLICA_HEARD_WITHIN_SECONDS
from baton_inference_router.actor import Rank, Router
from baton_inference_router.kv_listener import KvListener
from baton_inference_router.prefix_index import PrefixIndex
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.scoring import ranked
from baton_inference_router.settings import Settings


@asynccontextmanager
async def wire(settings: Settings, node: Node, bus: Bus, rank: Rank = ranked) -> AsyncGenerator[None, None]:
    index = PrefixIndex(node.clock, settings.router_index_blocks)
    listener = KvListener(node, index)
    table = ReplicaTable(
        node.clock, settings.router_stale_seconds, settings.router_ramp_seconds, on_lost=listener.forget
    )
    router = Router(table, index, settings, rank)

    def on_heartbeat(message: BusMessage) -> None:
        beat = table.on_message(message)
        if beat and settings.router_prefix_aware:
            listener.on_heartbeat(beat)

    if settings.router_prefix_aware:
        await listener.start()  # before the first heartbeat: what is told when we ask must be heard
    subscription = await bus.subscribe(subjects.REPLICA_ALL, on_heartbeat)
    node.add(
        Actor(
            node,
            subject=subjects.ROUTE_ALL,
            message=RouteHandoff,
            handle=router.handle,
            stop_number=6,
            limits=InboxLimits(concurrency=256, mailbox=1024),
            ack_by_handler=True,
        )
    )
    node.supervise("forgetting silent replicas", lambda: _forget_silent(table))
    # Every living replica is heard once before the first request: an empty table would refuse it.
    await asyncio.sleep(REPLICA_HEARD_WITHIN_SECONDS)
    yield
    await subscription.unsubscribe()
    await listener.stop()


async def _forget_silent(table: ReplicaTable) -> None:
    """Their part of the index goes with them, also while nobody asks."""
    while True:
        await asyncio.sleep(REPLICA_HEARD_WITHIN_SECONDS)
        table.forget_silent()


def main() -> None:
    settings = load_settings(Settings)
    run_service("inference_router", settings, lambda node, bus: wire(settings, node, bus))


if __name__ == "__main__":
    main()
