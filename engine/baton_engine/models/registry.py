"""From config.json's model_type to a loaded model. A new family is one small file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from baton_engine.errors import ModelLoadError
from baton_engine.layers.linear import Weight
from baton_engine.models.decoder import DecoderModel
from baton_engine.models.llama import llama_spec
from baton_engine.models.loading import Placement, load_decoder
from baton_engine.models.mistral import mistral_spec
from baton_engine.models.qwen2 import qwen2_spec
from baton_engine.models.qwen3 import qwen3_spec
from baton_engine.models.spec import DecoderSpec

FAMILIES: dict[str, Callable[[Mapping[str, Any]], DecoderSpec]] = {
    "llama": llama_spec,
    "mistral": mistral_spec,
    "qwen2": qwen2_spec,
    "qwen3": qwen3_spec,
}


class WeightSource(Protocol):
    """The part of a checkpoint that a model needs: config.json's keys and the tensors by HF name."""

    @property
    def config(self) -> dict[str, Any]: ...

    def tensors(self) -> Iterator[tuple[str, Tensor]]: ...


@runtime_checkable
class StoredWeights(Protocol):
    """A checkpoint that has quantised tensors, and can give them so."""

    def stored_tensors(self) -> Iterator[tuple[str, Weight]]: ...


def supported_model_types() -> list[str]:
    return sorted(FAMILIES)


def read_spec(source: WeightSource) -> DecoderSpec:
    """Raises ModelLoadError if the family is unknown or config.json asks for what it does not have."""
    model_type = source.config.get("model_type")
    family = FAMILIES.get(str(model_type))
    if family is None:
        known = ", ".join(supported_model_types())
        raise ModelLoadError(f"config.json has model_type {model_type!r}; this engine runs {known}.")
    return family(source.config)


def build_model(
    source: WeightSource, dtype: torch.dtype, device: torch.device, pack: bool = True, bits: int | None = None
) -> DecoderModel:
    """bits: 8 or 4, to quantise on load. pack=False is for kernels that put weights into an order of their
    own; for them, what a file holds quantised stays so. Raises ModelLoadError if the family is unknown, or a
    tensor is missing or of the wrong shape.
    """
    keep_stored = not pack or bits is not None
    tensors = (
        source.stored_tensors() if keep_stored and isinstance(source, StoredWeights) else source.tensors()
    )
    return load_decoder(read_spec(source), tensors, Placement(dtype, device, pack, bits))
