"""How alike texts are, by asking the embedder over the bus. An embedder that is away or slow is left
alone.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from baton_common.bus import Bus
from baton_common.clock import Clock
from baton_common.errors import BusError
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.queries import EmbedQuery, EmbedReply

log = logging.getLogger(__name__)

REST_SECONDS = 5.0
"""After a failure nobody waits for it: a cache must not be what makes answers slow."""

Vector = tuple[float, ...]


@dataclass(frozen=True)
class Vectors:
    """`model` made them: those of another one can't be compared with them."""

    model: str
    vectors: tuple[Vector, ...]


class EmbedderClient:
    def __init__(self, bus: Bus, clock: Clock, seconds: float) -> None:
        self._bus = bus
        self._clock = clock
        self._seconds = seconds
        self._rests_until = 0.0

    async def embed(self, request_id: str, texts: Sequence[str]) -> Vectors | None:
        """One unit vector a text, in order; None: not now."""
        if self._clock.monotonic() < self._rests_until:
            return None
        try:
            payload = await self._bus.request(
                subjects.embed(request_id), EmbedQuery(texts=tuple(texts)).encode(), timeout=self._seconds
            )
            reply = EmbedReply.decode(payload)
        except (BusError, MalformedMessage) as error:
            return self._leave_alone(str(error) or type(error).__name__)
        if reply.error:
            return self._leave_alone(reply.error.code)
        sizes = {len(vector) for vector in reply.vectors}
        if len(reply.vectors) != len(texts) or len(sizes) != 1:
            return self._leave_alone("vectors are missing")
        return Vectors(reply.model, reply.vectors)

    def _leave_alone(self, reason: str) -> None:
        log.warning("no vectors from the embedder, left alone for %g s: %s", REST_SECONDS, reason)
        self._rests_until = self._clock.monotonic() + REST_SECONDS


def similarity(one: Vector, other: Vector) -> float:
    """The cosine of unit vectors."""
    return sum(x * y for x, y in zip(one, other, strict=True))
