"""What an engine tells of itself: its load and sums as of one step, and what a cancel did. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field

from baton_engine.speculation.drafting import SpeculationStats
from baton_engine.step_profile import StepProfile


@dataclass(frozen=True)
class CancelReport:
    """found is False for an id that is not held (never was, or is finished already)."""

    found: bool
    blocks_freed: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True)
class EngineStats:
    running: int
    waiting: int
    waiting_tokens: int
    kv_blocks_total: int
    kv_blocks_free: int
    kv_blocks_cached: int
    kv_blocks_held: int
    kv_usage: float
    prompt_tokens_total: int
    generation_tokens_total: int
    preemptions_total: int
    prefix_hit_tokens_total: int
    steps_total: int
    step_profile: StepProfile = field(default_factory=StepProfile)
    speculation: SpeculationStats = field(default_factory=SpeculationStats)
    prefill_tokens: int = 0
    """Of the prompts that run, not computed yet."""


@dataclass
class Totals:
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_hit_tokens: int = 0
    steps: int = 0
