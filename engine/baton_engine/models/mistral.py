"""The Mistral family: Llama's shape, with one sliding window for all layers where sliding_window is set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from baton_engine.models.spec import DecoderSpec, common_spec, window_everywhere


def mistral_spec(config: Mapping[str, Any]) -> DecoderSpec:
    return DecoderSpec(**common_spec(config), windows=window_everywhere(config))
