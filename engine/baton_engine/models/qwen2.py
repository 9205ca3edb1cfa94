"""The Qwen2 family (Qwen2, Qwen2.5, their coders): Llama's shape with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton_engine.models.spec import DecoderSpec, common_spec, sliding_windows


def qwen2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    return DecoderSpec(**common_spec(config), qkv_bias=True, windows=sliding_windows(config))
