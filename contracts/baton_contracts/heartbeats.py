"""Heartbeats: who is there, in what state, and how loaded each replica is. Core NATS, losing one is fine."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from baton_contracts.base import MAX_COUNT, WireModel
from baton_contracts.identifiers import SubjectToken
from baton_contracts.subjects import Service

State = Literal["starting", "ready", "draining", "gone"]
Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Rate = Annotated[float, Field(ge=0, le=1e12)]

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
    max_tokens: int = Field(ge=1, description="Longer texts are cut, or refused if asked for whole.")


class Lease(WireModel):
    """On `lease.INSTANCE`, from every process, every LEASE_INTERVAL_SECONDS; `gone` as the last word.

    A peer that waits for an instance treats LEASE_LOST_AFTER_SECONDS of silence as its death.
    """

    service: Service
    instance: SubjectToken
    state: State
    mailbox_depth: Count = 0
    reads_frame_batches: bool = Field(default=False, description="FrameBatch is understood here.")
    embeds: EmbeddingModel | None = Field(default=None, description="Only in the lease of an embedder.")
    books_closed: bool = Field(
        default=False, description="With `gone`: all that it had to store for others to read is stored."
    )
    spans_dropped: int | None = Field(
        default=None,
        ge=1,
        le=MAX_COUNT,
        description="Batches of spans that nobody will read, since its start.",
    )


class StepProfile(WireModel):
    """Where the time of the engine's steps went, as sums since its start."""

    model_config = ConfigDict(allow_inf_nan=False)

    schedule_seconds: float = Field(default=0.0, ge=0)
    model_seconds: float = Field(default=0.0, ge=0)
    sample_seconds: float = Field(default=0.0, ge=0)
    emit_seconds: float = Field(default=0.0, ge=0)
    draft_seconds: float = Field(default=0.0, ge=0, description="Making guesses, where it speculates.")
    steps_total: Count = Field(default=0, description="Steps that computed something.")
    tokens_total: Count = Field(default=0, description="Tokens computed, of prompts and answers.")


class Speculation(WireModel):
    """What speculative decoding guessed, as sums since the engine's start."""

    drafts_total: Count = Field(default=0, description="Requests × steps that had guesses.")
    draft_tokens_total: Count = 0
    accepted_tokens_total: Count = 0


class ReplicaHeartbeat(WireModel):
    """On `replica.MODEL.REPLICA`, every REPLICA_INTERVAL_SECONDS and after each change of state.

    Routers calculate with these numbers: one that is beyond all measure makes the whole message invalid.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    replica: SubjectToken = Field(description="Instance of the engine worker.")
    model: str
    state: State
    stage: str = Field(default="", description="While starting: load, warm_up, … for people.")
    sent_at: float = Field(description="Unix time in seconds.")
    num_running: Count = 0
    num_waiting: Count = 0
    waiting_tokens: Count = 0
    prefill_tokens: Count = Field(
        default=0, description="Of running prompts, not computed yet; in waiting_tokens they are not."
    )
    max_running: int = Field(default=1, ge=1, le=MAX_COUNT)
    max_waiting: Count = 0
    max_waiting_tokens: Count = Field(default=0, description="Bound of waiting_tokens; 0: none is told.")
    kv_usage: float = Field(
        default=0.0, ge=0, le=1, description="Held blocks ÷ all blocks; cached ones count as free."
    )
    kv_blocks_total: Count = 0
    kv_blocks_held: Count = 0
    context_length: Count = Field(default=0, description="Longest prompt + output, tokens.")
    adapters: tuple[str, ...] = ()
    kv_epoch: str = Field(default="", description="Of its KV events; empty: it tells none.")
    kv_next_seq: Count = Field(default=0, description="Number that the next KvEvents will have.")
    counting_since: float = Field(
        default=0.0,
        ge=0,
        description="Unix time in seconds, by the clock of `sent_at`, from which on its totals count: it was "
        "loaded and warm. 0: not yet, or not told.",
    )
    prompt_tokens_total: Count = 0
    generation_tokens_total: Count = 0
    preemptions_total: Count = 0
    prefix_hit_tokens_total: Count = 0
    finished_requests_total: Count = 0
    step_profile: StepProfile = StepProfile()
    speculation: Speculation = Speculation()
    tokens_per_second: Rate = Field(default=0.0, description="Output rate over the last seconds.")
    prefill_tokens_per_second: Rate = Field(
        default=0.0, description="Of prompts, while they are computed; 0: not measured yet."
    )
    requests_per_second: Rate = Field(default=0.0, description="Finished requests, over the last seconds.")
