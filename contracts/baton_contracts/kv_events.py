"""KV events: which prefix blocks a replica holds, told as numbered changes.

An engine worker publishes one `KvEvents` on `kv.REPLICA` for each engine step that changes what a prefix can
find; a router that applies them in order has exactly the hashes of that replica's cache. A late listener, and
one that sees a gap, asks on `kv.ask.REPLICA`: what is published next is `cleared` and then all there is. The
heartbeat says how far the numbers are, so that the loss of the last message shows too.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import SubjectToken


class KvChange(WireModel):
    """`cleared` has no hashes. A `stored` run is one prefix: each block comes right behind the one before."""

    kind: Literal["stored", "removed", "cleared"]
    block_hashes: tuple[str, ...] = Field(
        default=(), description="SHA-256 of the chain up to each block, hex."
    )
    parent_hash: str | None = Field(default=None, description="Of the block before the first one stored.")


class KvEvents(WireModel):
    """The changes of one step, or a part of them, in order."""

    replica: SubjectToken
    epoch: str = Field(
        min_length=1, description="Another one is another cache: what was known of this replica is void."
    )
    seq: int = Field(ge=0, description="Counts from 0 within an epoch. One missing: ask for all again.")
    block_size: int = Field(default=16, ge=1, description="Tokens.")
    changes: tuple[KvChange, ...]


class KvAsk(WireModel):
    """Tell everything again. Subscribe first: the answer comes on `kv.REPLICA`, for all who listen."""

    asker: SubjectToken


class KvAskReply(WireModel):
    """Everything is told again, beginning with `next_seq` or later; or `error`: the replica can't now."""

    epoch: str = ""
    next_seq: int = Field(default=0, ge=0)
    error: ErrorBody | None = None
