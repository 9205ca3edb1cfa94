"""Baton's inference engine: torch, continuous batching over paged KV. Usable alone; knows no network.

    from baton_engine import LLM, SamplingParams
    LLM("path/to/model").generate("Once upon a time", SamplingParams(max_tokens=32))
"""

from .admission import Admission
from .async_engine import AsyncEngine
from .config import EngineConfig
from .engine import CancelReport, EngineStats
from .errors import (
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
from .llm import LLM, RequestOutput
from .request import EngineRequest, PrefillChunk, RequestDelta, RequestFailure, Timings, Usage
from .sampling_params import SamplingParams

__all__ = [
    "LLM",
    "Admission",
    "AsyncEngine",
    "CancelReport",
    "ConfigError",
    "ContextLengthExceeded",
    "DuplicateRequest",
    "EngineConfig",
    "EngineError",
    "EngineRequest",
    "EngineStats",
    "EngineUnavailable",
    "InvalidParameter",
    "KVCapacityExceeded",
    "ModelLoadError",
    "PrefillChunk",
    "QueueFull",
    "RequestDelta",
    "RequestFailure",
    "RequestOutput",
    "RequestRejected",
    "SamplingParams",
    "Timings",
    "Usage",
]
