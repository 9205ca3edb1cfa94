"""The dense Qwen3 family: no biases, but each head of q and k is normed before the rotation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton_engine.models.spec import DecoderSpec, common_spec, sliding_windows

DEFAULT_HEAD_DIM = 128  # not hidden_size / heads: Qwen3-0.6B has 16 heads of 128 over 1,024


def qwen3_spec(config: Mapping[str, Any]) -> DecoderSpec:
    attention_bias = bool(config.get("attention_bias", False))
    return DecoderSpec(
        **common_spec({"head_dim": DEFAULT_HEAD_DIM} | dict(config)),
        qkv_bias=attention_bias,
        output_bias=attention_bias,
        qk_norm=True,
        windows=sliding_windows(config),
    )
