"""What the worker needs of an engine: `baton_engine.AsyncEngine` fulfils it, and so may another one."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from baton_engine import (
    Admission,
    CancelReport,
    EngineRequest,
    EngineStats,
    KVEventBatch,
    RequestDelta,
    SamplingParams,
)


class Engine(Protocol):
    @property
    def state(self) -> str:
        """new, starting, ready, failed or closed."""
        ...

    @property
    def failure(self) -> str | None: ...

    @property
    def tokenizer(self) -> Any: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def generation_defaults(self) -> dict[str, Any]: ...

    async def start(self, on_progress: Callable[[str], None] | None = None) -> None: ...

    async def close(self) -> None: ...

    def prepare(self, sampling: SamplingParams) -> Future[Any]:
        """The grammar of its structure, for EngineRequest, or an EngineError. Raises EngineError. The future
        is the caller's own: to cancel it takes the grammar from nobody else."""
        ...

    def submit(self, asked: EngineRequest, on_delta: Callable[[RequestDelta], None]) -> Admission: ...

    def cancel(self, request_id: str) -> Future[CancelReport]: ...

    def stats(self) -> EngineStats: ...

    def set_step_listener(self, on_step: Callable[[], None] | None) -> None: ...

    def on_kv_event(self, listener: Callable[[KVEventBatch], None] | None) -> None:
        """Called in the engine's thread. The first batch after this clears and then holds all there is."""
        ...
