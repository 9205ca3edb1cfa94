"""Baton's inference engine: torch, continuous batching over paged KV. Usable alone; knows no network.

from baton_engine import LLM, SamplingParams
LLM("path/to/model").generate("Once upon a time", SamplingParams(max_tokens=32))
"""

# ruff: noqa: E402  (the first import must come before torch's)
from baton_engine.openmp import wait_briefly

wait_briefly()

from baton_engine.admission import Admission
from baton_engine.async_engine import AsyncEngine
from baton_engine.config import EngineConfig
from baton_engine.deltas import (
    Preemption,
    PrefillChunk,
    RequestDelta,
    RequestFailure,
    Timings,
    TokenLogprobs,
    Usage,
)
from baton_engine.engine_stats import CancelReport, EngineStats
from baton_engine.errors import (
    ConfigError,
    ContextLengthExceeded,
    DuplicateRequest,
    EngineError,
    EngineUnavailable,
    InvalidParameter,
    KVCapacityExceeded,
    ModelLoadError,
    QueueFull,
    RequestRejected,
)
from baton_engine.kv_cache import prefix_hashes
from baton_engine.kv_events import BlocksRemoved, BlocksStored, CacheCleared, KVEvent, KVEventBatch
from baton_engine.llm import LLM, RequestOutput
from baton_engine.output_format import OutputFormat, ToolCallDelta, ToolCallFormat
from baton_engine.request import EngineRequest
from baton_engine.sampling_params import SamplingParams
from baton_engine.speculation.drafting import SpeculationStats
from baton_engine.speculation.settings import DraftSpeculation, NgramSpeculation
from baton_engine.step_profile import StepProfile
from baton_engine.structured import StructuredOutput

__all__ = [
    "LLM",
    "Admission",
    "AsyncEngine",
    "BlocksRemoved",
    "BlocksStored",
    "CacheCleared",
    "CancelReport",
    "ConfigError",
    "ContextLengthExceeded",
    "DraftSpeculation",
    "DuplicateRequest",
    "EngineConfig",
    "EngineError",
    "EngineRequest",
    "EngineStats",
    "EngineUnavailable",
    "InvalidParameter",
    "KVCapacityExceeded",
    "KVEvent",
    "KVEventBatch",
    "ModelLoadError",
    "NgramSpeculation",
    "OutputFormat",
    "Preemption",
    "PrefillChunk",
    "QueueFull",
    "RequestDelta",
    "RequestFailure",
    "RequestOutput",
    "RequestRejected",
    "SamplingParams",
    "SpeculationStats",
    "StepProfile",
    "StructuredOutput",
    "Timings",
    "TokenLogprobs",
    "ToolCallDelta",
    "ToolCallFormat",
    "Usage",
    "prefix_hashes",
]
