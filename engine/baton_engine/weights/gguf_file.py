"""A GGUF file as a checkpoint: config, generation defaults and dequantised tensors under HF names.

Owns the mapped tensor data and the un-permutation of llama's q/k rows. The header's byte layout belongs
to `gguf_header`, names and keys to `gguf_config`, the quantised formats to the `gguf` package.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize

from baton_engine.errors import ModelLoadError
from baton_engine.layers.quantized import QuantizedWeight, quantize
from baton_engine.weights import gguf_config
from baton_engine.weights.gguf_header import TensorInfo, read_header
from baton_engine.weights.gguf_quantized import REQUANTIZED, exact_form, stored_bits


class GGUFFile:
    """One open GGUF file. Tensors are produced one at a time, so memory peaks at the largest of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        header = read_header(path)
        self.metadata: dict[str, Any] = header.metadata
        self._tensors = {
            gguf_config.hf_tensor_name(name): info
            for name, info in header.tensors.items()
            if name not in gguf_config.DERIVED_TENSORS
        }
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        self.config = gguf_config.hf_config(self.metadata, frozenset(header.tensors))
        if (factors := header.tensors.get("rope_freqs.weight")) is not None:
            values = self._dequantized(factors)
            self.config["rope_scaling"] = gguf_config.rope_scaling_from_factors(values, self.config)
        self.generation_defaults = gguf_config.hf_generation_defaults(self.metadata)

    def tensor_names(self) -> set[str]:
        return set(self._tensors)

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes under HF names, known without dequantising anything."""
        return {name: info.shape for name, info in self._tensors.items()}

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(HF name, float32 tensor), in file order."""
        for name in self._tensors:
            yield name, self.tensor(name)

    def stored_tensors(self) -> Iterator[tuple[str, torch.Tensor | QuantizedWeight]]:
        """As `tensors`, but what is quantised in the file stays in 8 or 4 bits."""
        for name, info in self._tensors.items():
            yield name, self._quantized(name, info) or self.tensor(name)

    def stored_bits(self, name: str) -> int | None:
        """Of one tensor as `stored_tensors` gives it: 8 or 4; None for floats and for what is not there."""
        info = self._tensors.get(name)
        return stored_bits(info.quantization) if info is not None and len(info.shape) == 2 else None

    def _quantized(self, name: str, info: TensorInfo) -> QuantizedWeight | None:
        if info.quantization in REQUANTIZED and len(info.shape) == 2:
            return quantize(self.tensor(name), bits=8)
        raw = self._data[info.offset : info.offset + info.num_bytes]
        weight = exact_form(raw, info.quantization, info.shape)
        num_heads = self._permuted_heads(name)
        if weight is None or num_heads is None:
            return weight
        return weight.rows(_unpermute(torch.arange(info.shape[0]), num_heads))

    def tensor(self, name: str) -> torch.Tensor:
        """One tensor by its HF name, float32, in the row order that HF models expect."""
        values = torch.from_numpy(self._dequantized(self._tensors[name]))
        num_heads = self._permuted_heads(name)
        return values if num_heads is None else _unpermute(values, num_heads)

    def _dequantized(self, info: TensorInfo) -> np.ndarray[Any, Any]:
        raw = self._data[info.offset : info.offset + info.num_bytes]
        if info.quantization == GGMLQuantizationType.F32:
            return raw.view(np.float32).reshape(info.shape).copy()
        try:
            rows = dequantize(raw.reshape(*info.shape[:-1], -1), info.quantization)
        except NotImplementedError as error:
            reason = f"has the unsupported type {info.quantization.name}"
            raise ModelLoadError(f"{self.path}: tensor {info.name!r} {reason}") from error
        return np.ascontiguousarray(rows, dtype=np.float32).reshape(info.shape)

    def _permuted_heads(self, name: str) -> int | None:
        """llama.cpp stores llama's q and k rows for interleaved rotary pairs; other families as they were."""
        if self.config["model_type"] != "llama":
            return None
        if ".q_proj." in name:
            return int(self.config["num_attention_heads"])
        return int(self.config["num_key_value_heads"]) if ".k_proj." in name else None


def _unpermute(rows: torch.Tensor, num_heads: int) -> torch.Tensor:
    """[head, pair, 2] row order → [head, 2, pair], the halves that HF's rotary embedding rotates."""
    shape = rows.shape
    pairs = rows.reshape(num_heads, shape[0] // num_heads // 2, 2, *shape[1:])
    return pairs.transpose(1, 2).reshape(shape).contiguous()
