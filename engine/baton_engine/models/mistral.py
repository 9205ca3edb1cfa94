"""The Mistral family: Llama's shape, with one sliding window for all layers where sliding_window is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton_engine.models.spec import DecoderSpec, common_spec


def mistral_spec(config: Mapping[str, Any]) -> DecoderSpec:
    common = common_spec(config)
    window = config.get("sliding_window")
    return DecoderSpec(**common, windows=(window,) * common["num_layers"] if window else ())
