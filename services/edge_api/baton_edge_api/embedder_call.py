"""A question to the embedder, asked again where it may be lost, with the one that had it or in the bus.

Nobody says who has taken a question, and an answer may take a minute: without this so long would be waited
for one that can't come. Asked twice costs the embedder its work twice, no more. Knows nothing of HTTP.
"""

from __future__ import annotations

import asyncio

from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.queries import EmbedQuery, EmbedReply
from baton_edge_api.side_questions import ask


class EmbedderCall:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._waiting: set[asyncio.Event] = set()
        node.bus.when_back(self._all_lost)

    def _all_lost(self) -> None:
        for lost in self._waiting:
            lost.set()

    async def __call__(self, request_id: str, query: EmbedQuery, seconds: float) -> EmbedReply:
        """Raises RequestFailed."""
        now = asyncio.get_running_loop().time
        give_up_at = now() + seconds
        while True:
            reply = await self._once(request_id, query, max(0.1, give_up_at - now()))
            if reply:
                return reply

    async def _once(self, request_id: str, query: EmbedQuery, seconds: float) -> EmbedReply | None:
        """None: it may be lost. Raises RequestFailed."""
        leases, lost = self._node.leases, asyncio.Event()
        self._waiting.add(lost)
        unwatch = [leases.watch(each, lambda _: lost.set()) for each in leases.ready_instances("embedder")]
        subject = subjects.embed(request_id)
        asking = asyncio.create_task(
            ask(self._node.bus, subject, query, EmbedReply, to="embedder", seconds=seconds)
        )
        losing = asyncio.create_task(lost.wait())
        try:
            await asyncio.wait({asking, losing}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            losing.cancel()
            self._waiting.discard(lost)
            for end in unwatch:
                end()
