"""KV events: which prefix blocks a replica holds. Numbered; a gap is asked again; a new epoch purges.

An engine worker publishes them on `kv.REPLICA`; a router keeps its prefix index from them.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.identifiers import SubjectToken


class KvEvent(WireModel):
    replica: SubjectToken
    epoch: int = Field(ge=0, description="Changes when the replica starts or clears its cache.")
    seq: int = Field(ge=0, description="Counts from 0 within an epoch.")
    kind: Literal["stored", "removed", "cleared"]
    block_hashes: tuple[str, ...] = Field(
        default=(), description="SHA-256 of the chain up to each block, hex."
    )
    parent_hash: str | None = Field(
        default=None, description="Hash of the block before the first one stored."
    )
    block_size: int = Field(default=16, ge=1)
