"""How both stores lay a chunk out: the same collection serves either. Knows no Qdrant."""

from __future__ import annotations

from typing import Any

from baton_prompt_builder.stores.interface import StoredChunk, to_payload

DENSE = "dense"
SPARSE = "bm25"
INDEXED = ("tenant_id", "source", "embedded_by")
PAGE = 256
"""Points in one call."""


def new_payload(chunk: StoredChunk) -> dict[str, Any]:
    """Of a chunk that has no vector yet."""
    return {**to_payload(chunk), "embedded_by": ""}
