"""A Hugging Face model folder as a checkpoint: config.json and safetensors, single or sharded.

Owns which files make up the folder and that they agree with each other; all of it is checked from the
headers before the first tensor is read. Knows nothing of model families.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, Final

import torch
from safetensors import SafetensorError, safe_open

from baton_engine.errors import ModelLoadError
from baton_engine.weights.safetensors_writer import INDEX_FILE, SINGLE_FILE

_SHARD_NAME: Final = re.compile(r"model-\d+-of-\d+\.safetensors")


class HFFolder:
    """One model folder. Tensors are read one at a time, shard by shard."""

    def __init__(self, folder: Path) -> None:
        self.path = folder
        self.config = _read_config(folder)
        self.generation_defaults = _read_json(folder / "generation_config.json", required=False)
        self._shards = _find_shards(folder)

    def tensor_names(self) -> set[str]:
        return {name for names in self._shards.values() for name in names}

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(name, tensor) in the stored dtype."""
        for file, names in self._shards.items():
            with _opened(file) as shard:
                for name in names:
                    yield name, shard.get_tensor(name)


def _read_config(folder: Path) -> dict[str, Any]:
    config = _read_json(folder / "config.json", required=True)
    if not isinstance(config.get("model_type"), str):
        raise ModelLoadError(f"{folder / 'config.json'} states no model_type")
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unknown")
        raise ModelLoadError(f"{folder}: {method!r} weights are not supported; use bf16 or a GGUF")
    return config


def _find_shards(folder: Path) -> dict[Path, list[str]]:
    """File → names of the tensors to take from it, from the index if there is one."""
    index_file, single = folder / INDEX_FILE, folder / SINGLE_FILE
    if index_file.is_file() and single.is_file():
        raise ModelLoadError(f"{folder} holds both {SINGLE_FILE} and {INDEX_FILE}: remove the stale one")
    if index_file.is_file():
        return _indexed_shards(folder, index_file)
    stray = _shard_files(folder)
    if stray:
        raise ModelLoadError(f"{folder} holds {min(stray)} but no {INDEX_FILE}; was the download cut short?")
    if not single.is_file():
        raise ModelLoadError(f"{folder} holds no safetensors: neither {SINGLE_FILE} nor {INDEX_FILE}")
    with _opened(single) as shard:
        return {single: list(shard.keys())}


def _indexed_shards(folder: Path, index_file: Path) -> dict[Path, list[str]]:
    weight_map = _read_json(index_file, required=True).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelLoadError(f"{index_file} has no weight_map")
    wanted: dict[str, list[str]] = {}
    for tensor_name, file_name in weight_map.items():
        wanted.setdefault(_plain_file_name(file_name, index_file), []).append(tensor_name)
    extra = _shard_files(folder) - set(wanted)
    if extra:
        raise ModelLoadError(f"{folder} holds {min(extra)}, which {INDEX_FILE} does not name")
    return {_checked_shard(folder / name, names): names for name, names in wanted.items()}


def _checked_shard(file: Path, tensor_names: list[str]) -> Path:
    """The index and the shard's own header must name the same tensors."""
    if not file.is_file():
        raise ModelLoadError(f"{file} is missing, but {INDEX_FILE} names it; was the download cut short?")
    with _opened(file) as shard:
        held = set(shard.keys())
    if held != set(tensor_names):
        odd = min(held ^ set(tensor_names))
        place = "is not in it" if odd not in held else f"is not in {INDEX_FILE}"
        raise ModelLoadError(f"{file} does not fit {INDEX_FILE}: tensor {odd!r} {place}")
    return file


def _plain_file_name(value: Any, index_file: Path) -> str:
    """The index comes with a download: it may name files of its own folder only."""
    is_file_name = isinstance(value, str) and value.endswith(".safetensors")
    if is_file_name and PurePosixPath(value).name == PureWindowsPath(value).name == value:
        return value
    raise ModelLoadError(f"{index_file} names the file {value!r}, which is not a plain .safetensors name")


def _shard_files(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir() if _SHARD_NAME.fullmatch(file.name)}


@contextmanager
def _opened(file: Path) -> Generator[Any]:
    """An open shard; the library's errors, while it is open, name the file."""
    try:
        with safe_open(file, framework="pt") as shard:
            yield shard
    except (SafetensorError, OSError) as error:
        raise ModelLoadError(f"{file} is not a whole safetensors file: {error}") from error


def _read_json(path: Path, *, required: bool) -> dict[str, Any]:
    if not path.is_file():
        if required:
            raise ModelLoadError(f"{path} is missing")
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} must hold a JSON object")
    return value
