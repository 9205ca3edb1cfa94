"""The Llama family: SmolLM2, TinyLlama, Llama 2 and 3, and all that say model_type llama."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton_engine.models.spec import DecoderSpec, common_spec


def llama_spec(config: Mapping[str, Any]) -> DecoderSpec:
    attention_bias = bool(config.get("attention_bias", False))
    return DecoderSpec(
        **common_spec(config),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        mlp_bias=bool(config.get("mlp_bias", False)),
    )
