"""What the engine worker reads from its environment, and the engine's configuration made of it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Literal

from pydantic import Field

from baton_common.catalog import DEFAULT_MAX_TOKENS, catalog_or_exit
from baton_common.catalog_models import CatalogModel, ToolFormat
from baton_common.settings import ServiceSettings
from baton_engine import EngineConfig, NgramSpeculation

_MB = 1024 * 1024


class Settings(ServiceSettings):
    model: str = Field(min_length=1)
    """Name under which the model is served; a name of the catalog, or any other."""
    model_path: Path | None = None
    """Hugging Face folder or .gguf file; by default the one that `baton models pull` made."""
    default_max_tokens: int | None = Field(default=None, ge=1)
    """Bound of an answer whose client gave none; the context may leave less. Else the catalog's word on this
    model, else 1024."""
    tool_format: Literal["auto", "hermes", "llama3_json", "pythonic"] = "auto"
    """How the model writes tool calls, where neither the catalog nor its chat template tells."""
    engine_dtype: str = "auto"
    engine_device: str = "auto"
    engine_backend: str = "auto"
    """auto, native or torch: whose kernels compute the steps."""
    engine_quantization: str | None = None
    """int8, int4, or nothing: how narrow weights are kept (fast in the native kernels)."""
    engine_kv_dtype: str = "auto"
    """auto (the model's), bfloat16, float32 or int8: what keys and values are kept in."""
    engine_threads: int | None = Field(default=None, ge=1)
    engine_max_seqs: int = Field(default=32, ge=1)
    engine_max_batched_tokens: int = Field(default=512, ge=1)
    engine_max_step_ms: float = Field(default=70.0, gt=0)
    """Beside streams, prompts are computed in chunks that keep a step about this short."""
    engine_kv_memory_mb: int | None = Field(default=None, ge=1)
    engine_memory_share: float = Field(default=1.0, gt=0, le=1)
    """Of the KV memory that it would take by itself; replicas on one machine divide it."""
    engine_max_model_len: int | None = Field(default=None, ge=1)
    engine_max_waiting: int = Field(default=256, ge=1)
    engine_max_waiting_tokens: int = Field(default=262_144, ge=1)
    engine_prefix_caching: bool = True
    engine_deterministic: bool = False
    """Greedy answers that don't depend on the batch, bit for bit. The native kernels' never do; torch pays.
    """
    engine_cuda_graphs: bool = True
    engine_speculation: Literal["off", "ngram"] = "off"
    """ngram: tokens are guessed from the request's own text while few requests run. Answers stay the same."""
    engine_stuck_seconds: float = Field(default=60.0, gt=0)
    """An engine with work whose step has not ended for this long has failed."""

    @property
    def answer_bound(self) -> int:
        known = self._in_catalog
        return self.default_max_tokens or (known and known.default_max_tokens) or DEFAULT_MAX_TOKENS

    @property
    def stated_tool_format(self) -> ToolFormat | None:
        """The operator's word, else the catalog's."""
        known = self._in_catalog
        return self.tool_format if self.tool_format != "auto" else known and known.tool_format

    @cached_property
    def _in_catalog(self) -> CatalogModel | None:
        return catalog_or_exit(self.home).models.get(self.model)

    @property
    def path(self) -> Path:
        return self.model_path or self.home / "models" / self.model

    def engine_config(self) -> EngineConfig:
        """Raises ConfigError for values that don't fit together."""
        return EngineConfig(
            model=self.path,
            dtype=self.engine_dtype,
            device=self.engine_device,
            backend=self.engine_backend,
            quantization=self.engine_quantization,
            kv_dtype=self.engine_kv_dtype,
            max_num_seqs=self.engine_max_seqs,
            max_num_batched_tokens=self.engine_max_batched_tokens,
            max_step_seconds=self.engine_max_step_ms / 1000,
            kv_memory_bytes=self.engine_kv_memory_mb * _MB if self.engine_kv_memory_mb else None,
            memory_share=self.engine_memory_share,
            max_model_len=self.engine_max_model_len,
            max_waiting_requests=self.engine_max_waiting,
            max_waiting_tokens=self.engine_max_waiting_tokens,
            num_threads=self.engine_threads,
            enable_prefix_caching=self.engine_prefix_caching,
            deterministic=self.engine_deterministic,
            cuda_graphs=self.engine_cuda_graphs,
            speculation=NgramSpeculation() if self.engine_speculation == "ngram" else None,
        )
