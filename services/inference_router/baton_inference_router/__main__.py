"""The router's process: wiring only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.actor import Actor
from baton_common.bus import Bus
from baton_common.intake import InboxLimits
from baton_common.node import Node
from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_contracts import subjects
from baton_contracts.handoffs import RouteHandoff
from baton_contracts.heartbeats import REPLICA_INTERVAL_SECONDS
from baton_inference_router.actor import Router
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.settings import Settings


@asynccontextmanager
async def wire(settings: Settings, node: Node, bus: Bus) -> AsyncGenerator[None, None]:
    table = ReplicaTable(node.clock, settings.router_stale_seconds)
    subscription = await bus.subscribe(subjects.REPLICA_ALL, table.on_message)
    router = Router(table, settings)
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
    # Every living replica is heard once before the first request: an empty table would refuse it.
    await asyncio.sleep(REPLICA_INTERVAL_SECONDS * 1.2)
    yield
    await subscription.unsubscribe()


def main() -> None:
    settings = load_settings(Settings)
    run_service("inference_router", settings, lambda node, bus: wire(settings, node, bus))


if __name__ == "__main__":
    main()
