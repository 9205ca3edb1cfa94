"""The one face of model weights, whatever file they come in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import torch

from baton_engine.errors import ModelLoadError
from baton_engine.weights.gguf_file import GGUFFile
from baton_engine.weights.hf_folder import HFFolder


class Checkpoint(Protocol):
    """A model on disk.

    config: keys and values of a Hugging Face config.json.
    generation_defaults: those of generation_config.json, or {}.
    """

    config: dict[str, Any]
    generation_defaults: dict[str, Any]

    def tensor_names(self) -> set[str]: ...

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(Hugging Face name, tensor), one at a time; stored dtype, or float32 where dequantised."""
        ...


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a Hugging Face folder or a .gguf file. Raises ModelLoadError with a sentence for people."""
    if path.is_dir():
        return HFFolder(path)
    if path.is_file() and path.suffix == ".gguf":
        return GGUFFile(path)
    reason = "is neither a model folder nor a .gguf file" if path.exists() else "does not exist"
    raise ModelLoadError(f"{path} {reason}")
