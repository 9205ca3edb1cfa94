"""Texts to vectors, by asking the embedder over the bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from baton_common.bus import Bus
from baton_common.errors import BusError, BusTimeout, NoResponders
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.queries import EmbedQuery, EmbedReply


class EmbeddingFailed(Exception):
    """No vectors. `reason` is one word for the trace: missing, slow, failed, or the embedder's error code."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"no vectors: embedder {reason}")
        self.reason = reason


@dataclass(frozen=True)
class Vectors:
    model: str
    vectors: tuple[tuple[float, ...], ...]


class EmbedderClient:
    def __init__(self, bus: Bus, vector_size: int) -> None:
        self._bus = bus
        self._vector_size = vector_size

    async def embed(self, request_id: str, texts: Sequence[str], seconds: float) -> Vectors:
        """One vector a text, in order. Raises EmbeddingFailed."""
        try:
            payload = await self._bus.request(
                subjects.embed(request_id), EmbedQuery(texts=tuple(texts)).encode(), timeout=seconds
            )
            reply = EmbedReply.decode(payload)
        except NoResponders:
            raise EmbeddingFailed("missing") from None
        except BusTimeout:
            raise EmbeddingFailed("slow") from None
        except (BusError, MalformedMessage) as error:
            raise EmbeddingFailed("failed") from error
        if reply.error:
            raise EmbeddingFailed(reply.error.code)
        if len(reply.vectors) != len(texts) or any(len(v) != self._vector_size for v in reply.vectors):
            raise EmbeddingFailed("wrong_size")
        return Vectors(reply.model, reply.vectors)
