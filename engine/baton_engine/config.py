"""The one flat configuration of an engine. Owns the values and their bounds; knows no model."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import torch

from baton_engine.errors import ConfigError
from baton_engine.queue_order import AGEING_SECONDS, SchedulingPolicy
from baton_engine.speculation.settings import SpeculationSettings

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "float16": torch.float16}
BACKENDS = ("auto", "native", "torch")
KV_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32, "int8": torch.int8}
QUANTIZATION_BITS = {None: None, "int8": 8, "int4": 4}


@dataclass(frozen=True)
class EngineConfig:
    """`model` is a Hugging Face folder or a .gguf file. `None` means: decided from the model and the machine.

    max_step_seconds: while answers are being written, prompts are computed in chunks that keep a step about
    this short, so that streams don't pause for longer (`step_pace.py`).
    memory_share: this engine's part of what it would take for keys and values by itself: several on one
    machine divide it. num_blocks, when given, wins over kv_memory_bytes. max_waiting_tokens counts prompt
    tokens. Under the policy priority a waiting request gains one level each priority_ageing_seconds; fcfs
    ignores priorities.
    backend auto takes the native kernels where they can serve the model in its dtype, else torch.
    quantization int8 keeps the matrices in 8 bits, int4 those of the MLP in 4 and the others in 8. The
    native kernels compute with them as they are, torch turns them into floats at each use: small, not fast.
    kv_dtype: what keys and values are kept in: auto (the model's dtype), bfloat16, float32 or int8. int8 has
    a scale for each token and head and halves a token's bytes. The native kernels know bfloat16 and int8.
    deterministic: a request's logits are the same bits whatever is computed beside it and however much of its
    prompt was cached. The native kernels are so always; in torch it costs speed (performance log).
    speculation guesses tokens from the request's own text (NgramSpeculation) or with a small model
    (DraftSpeculation); answers stay the same tokens.
    cuda_graphs: on a GPU decode steps are recorded at the start and replayed.
    """

    model: Path
    dtype: str = "auto"
    device: str = "auto"
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512
    max_step_seconds: float = 0.07
    block_size: int = 16
    kv_memory_bytes: int | None = None
    memory_share: float = 1.0
    num_blocks: int | None = None
    max_model_len: int | None = None
    max_waiting_requests: int = 256
    max_waiting_tokens: int = 262_144
    num_threads: int | None = None
    enable_prefix_caching: bool = True
    scheduling_policy: SchedulingPolicy = "priority"
    priority_ageing_seconds: float = AGEING_SECONDS
    backend: str = "auto"
    quantization: str | None = None
    kv_dtype: str = "auto"
    deterministic: bool = False
    speculation: SpeculationSettings | None = None
    cuda_graphs: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "model", Path(self.model))
        if self.dtype != "auto" and self.dtype not in DTYPES:
            raise ConfigError(f"dtype is {self.dtype!r}; use one of auto, {', '.join(DTYPES)}.")
        if self.backend not in BACKENDS:
            raise ConfigError(f"backend is {self.backend!r}; use one of {', '.join(BACKENDS)}.")
        if self.quantization not in QUANTIZATION_BITS:
            raise ConfigError(f"quantization is {self.quantization!r}; use int8, int4, or none.")
        if self.kv_dtype != "auto" and self.kv_dtype not in KV_DTYPES:
            raise ConfigError(f"kv_dtype is {self.kv_dtype!r}; use one of auto, {', '.join(KV_DTYPES)}.")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "max_waiting_requests"):
            self._require_positive(name)
        for name in ("kv_memory_bytes", "num_blocks", "max_model_len", "num_threads", "max_waiting_tokens"):
            if getattr(self, name) is not None:
                self._require_positive(name)
        if self.scheduling_policy not in get_args(SchedulingPolicy):
            raise ConfigError(f"scheduling_policy is {self.scheduling_policy!r}; use fcfs or priority.")
        if not 0 <= self.priority_ageing_seconds < math.inf:
            raise ConfigError(
                f"priority_ageing_seconds is {self.priority_ageing_seconds}; it must be finite, 0 or more."
            )
        if not 0 < self.memory_share <= 1:
            raise ConfigError(f"memory_share is {self.memory_share}; it must be over 0 and at most 1.")
        if not self.max_step_seconds > 0:
            raise ConfigError(f"max_step_seconds is {self.max_step_seconds}; it must be over 0.")
        if self.max_num_seqs > self.max_num_batched_tokens:
            raise ConfigError(
                f"max_num_seqs ({self.max_num_seqs}) is over max_num_batched_tokens "
                f"({self.max_num_batched_tokens}): a step could not hold one token of each request."
            )

    def _require_positive(self, name: str) -> None:
        value = getattr(self, name)
        if value < 1:
            raise ConfigError(f"{name} is {value}; it must be at least 1.")

    def resolve_device(self) -> torch.device:
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        try:
            return torch.device(self.device)
        except RuntimeError as error:
            raise ConfigError(f"device is {self.device!r}, which torch does not know: {error}") from error

    def resolve_dtype(self, device: torch.device) -> torch.dtype:
        """bfloat16 where the hardware multiplies it natively; else float16 on a GPU, float32 on a CPU."""
        if self.dtype != "auto":
            return DTYPES[self.dtype]
        if device.type == "cuda":
            native = torch.cuda.is_bf16_supported(including_emulation=False)
            return torch.bfloat16 if native else torch.float16
        return torch.bfloat16 if cpu_has_native_bfloat16() else torch.float32

    def resolve_kv_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """dtype: what the model computes with."""
        return KV_DTYPES.get(self.kv_dtype, dtype)

    def resolve_num_threads(self) -> int:
        """All cores that this process may use, unless configured."""
        if self.num_threads is not None:
            return self.num_threads
        if hasattr(os, "sched_getaffinity"):
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1


def cpu_has_native_bfloat16() -> bool:
    """True on CPUs with AVX512_BF16 or AMX, the two that have bfloat16 dot products."""
    probes = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, probe, bool)()) for probe in probes)
