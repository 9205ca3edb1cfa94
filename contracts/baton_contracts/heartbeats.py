"""Heartbeats: who is there, in what state, and how loaded each replica is. Core NATS, losing one is fine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.identifiers import SubjectToken
from baton_contracts.subjects import Service

State = Literal["starting", "ready", "draining", "gone"]

LEASE_INTERVAL_SECONDS = 0.5
LEASE_LOST_AFTER_SECONDS = 3.0
REPLICA_INTERVAL_SECONDS = 0.25
REPLICA_HEARD_WITHIN_SECONDS = 2 * REPLICA_INTERVAL_SECONDS
"""Who has listened so long has heard every living replica: beats wait for a whole multiple of the interval,
so after a change of state one may come up to 1.5 intervals later."""
REPLICA_STALE_AFTER_SECONDS = 2.0


class EmbeddingModel(WireModel):
    """What an embedder serves."""

    name: str = Field(max_length=128)
    dimensions: int = Field(ge=1)
    max_tokens: int = Field(ge=1, description="Longer texts are cut.")


class Lease(WireModel):
    """On `lease.INSTANCE`, from every process, every LEASE_INTERVAL_SECONDS; `gone` as the last word.

    A peer that waits for an instance treats LEASE_LOST_AFTER_SECONDS of silence as its death.
    """

    service: Service
    instance: SubjectToken
    state: State
    mailbox_depth: int = Field(default=0, ge=0)
    reads_frame_batches: bool = Field(default=False, description="FrameBatch is understood here.")
    embeds: EmbeddingModel | None = Field(default=None, description="Only in the lease of an embedder.")
    books_closed: bool = Field(
        default=False, description="With `gone`: all that it had to store for others to read is stored."
    )
    spans_dropped: int | None = Field(
        default=None, ge=1, description="Batches of spans that nobody will read, since its start."
    )


class StepProfile(WireModel):
    """Where the time of the engine's steps went, as sums since its start."""

    schedule_seconds: float = Field(default=0.0, ge=0)
    model_seconds: float = Field(default=0.0, ge=0)
    sample_seconds: float = Field(default=0.0, ge=0)
    emit_seconds: float = Field(default=0.0, ge=0)
    draft_seconds: float = Field(default=0.0, ge=0, description="Making guesses, where it speculates.")
    steps_total: int = Field(default=0, ge=0, description="Steps that computed something.")
    tokens_total: int = Field(default=0, ge=0, description="Tokens computed, of prompts and answers.")


class Speculation(WireModel):
    """What speculative decoding guessed, as sums since the engine's start."""

    drafts_total: int = Field(default=0, ge=0, description="Requests × steps that had guesses.")
    draft_tokens_total: int = Field(default=0, ge=0)
    accepted_tokens_total: int = Field(default=0, ge=0)


class ReplicaHeartbeat(WireModel):
    """On `replica.MODEL.REPLICA`, every REPLICA_INTERVAL_SECONDS and after each change of state."""

    replica: SubjectToken = Field(description="Instance of the engine worker.")
    model: str
    state: State
    stage: str = Field(default="", description="While starting: load, warm_up, … for people.")
    sent_at: float = Field(description="Unix time in seconds.")
    num_running: int = Field(default=0, ge=0)
    num_waiting: int = Field(default=0, ge=0)
    waiting_tokens: int = Field(default=0, ge=0)
    prefill_tokens: int = Field(
        default=0,
        ge=0,
        description="Of running prompts, not computed yet; in waiting_tokens they are not.",
    )
    max_running: int = Field(default=1, ge=1)
    max_waiting: int = Field(default=0, ge=0)
    max_waiting_tokens: int = Field(default=0, ge=0, description="Bound of waiting_tokens; 0: none is told.")
    kv_usage: float = Field(
        default=0.0, ge=0, le=1, description="Held blocks ÷ all blocks; cached ones count as free."
    )
    kv_blocks_total: int = Field(default=0, ge=0)
    kv_blocks_held: int = Field(default=0, ge=0)
    context_length: int = Field(default=0, ge=0, description="Longest prompt + output, tokens.")
    adapters: tuple[str, ...] = ()
    kv_epoch: str = Field(default="", description="Of its KV events; empty: it tells none.")
    kv_next_seq: int = Field(default=0, ge=0, description="Number that the next KvEvents will have.")
    counting_since: float = Field(
        default=0.0, ge=0, description="Unix time in seconds from which on its totals count."
    )
    prompt_tokens_total: int = Field(default=0, ge=0)
    generation_tokens_total: int = Field(default=0, ge=0)
    preemptions_total: int = Field(default=0, ge=0)
    prefix_hit_tokens_total: int = Field(default=0, ge=0)
    finished_requests_total: int = Field(default=0, ge=0)
    step_profile: StepProfile = StepProfile()
    speculation: Speculation = Speculation()
    tokens_per_second: float = Field(default=0.0, ge=0, description="Output rate over the last seconds.")
    prefill_tokens_per_second: float = Field(
        default=0.0,
        ge=0,
        description="Of prompts, while they are computed; 0: not measured yet.",
    )
    requests_per_second: float = Field(
        default=0.0, ge=0, description="Finished requests, over the last seconds."
    )
