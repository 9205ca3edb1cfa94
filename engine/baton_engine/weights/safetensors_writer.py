"""Writes safetensors shards one tensor at a time, with the index that Hugging Face folders use.

Owns the shard plan and the file layout (an 8-byte length, a JSON header, then the data). The library's
own writer wants every tensor of a file in memory at once; the layout is fixed beforehand from shapes
alone, so that here only one tensor is ever held.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"

_DTYPE_NAMES: Final = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
_HEADER_ALIGNMENT: Final = 8


@dataclass(frozen=True)
class Shard:
    """One file and the tensors in it, in the order in which they lie there."""

    file_name: str
    names: tuple[str, ...]


def plan_shards(shapes: Mapping[str, Sequence[int]], dtype: torch.dtype, max_shard_bytes: int) -> list[Shard]:
    """Fill shards in order; a tensor over the limit gets one of its own."""
    groups: list[list[str]] = []
    filled = 0
    for name, shape in shapes.items():
        num_bytes = _num_bytes(shape, dtype)
        if not groups or filled + num_bytes > max_shard_bytes:
            groups.append([])
            filled = 0
        groups[-1].append(name)
        filled += num_bytes
    if len(groups) == 1:
        return [Shard(SINGLE_FILE, tuple(groups[0]))]
    return [
        Shard(f"model-{number:05d}-of-{len(groups):05d}.safetensors", tuple(names))
        for number, names in enumerate(groups, start=1)
    ]


def write_shard(
    path: Path,
    shapes: Mapping[str, Sequence[int]],
    dtype: torch.dtype,
    tensors: Iterator[tuple[str, torch.Tensor]],
) -> None:
    """Write the tensors, which must come in the order of `shapes`, as `dtype`, and sync the file."""
    header = _header(shapes, dtype)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for expected, (name, tensor) in zip(shapes, tensors, strict=True):
            if name != expected or tuple(tensor.shape) != tuple(shapes[expected]):
                raise ValueError(f"expected {expected} {shapes[expected]}, got {name} {tuple(tensor.shape)}")
            raw = tensor.to(dtype).contiguous().flatten().view(torch.uint8)
            file.write(raw.numpy().data)
        file.flush()
        os.fsync(file.fileno())


def index_document(
    shards: Sequence[Shard], shapes: Mapping[str, Sequence[int]], dtype: torch.dtype
) -> dict[str, Any]:
    """Content of `model.safetensors.index.json`."""
    total = sum(_num_bytes(shape, dtype) for shape in shapes.values())
    weight_map = {name: shard.file_name for shard in shards for name in shard.names}
    return {"metadata": {"total_size": total}, "weight_map": weight_map}


def _header(shapes: Mapping[str, Sequence[int]], dtype: torch.dtype) -> bytes:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + _num_bytes(shape, dtype)
        entries[name] = {"dtype": _DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    raw = json.dumps(entries, separators=(",", ":")).encode()
    return raw + b" " * (-len(raw) % _HEADER_ALIGNMENT)


def _num_bytes(shape: Sequence[int], dtype: torch.dtype) -> int:
    return math.prod(shape) * dtype.itemsize
