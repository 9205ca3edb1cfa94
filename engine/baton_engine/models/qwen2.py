"""The Qwen2 family (Qwen2, Qwen2.5, their coders): Llama's shape with biases on q, k and v."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton_engine.errors import ModelLoadError
from baton_engine.models.spec import DecoderSpec, common_spec


def qwen2_spec(config: Mapping[str, Any]) -> DecoderSpec:
    if config.get("use_sliding_window"):
        raise ModelLoadError(
            "config.json sets use_sliding_window, which this engine does not have: answers would differ."
        )
    return DecoderSpec(**common_spec(config), qkv_bias=True)
