"""Converts a GGUF file into a Hugging Face folder: `python -m baton_engine.weights.convert SRC.gguf DST_DIR`.

Owns the order of writing and its atomicity: everything goes into a temporary folder beside the target,
which takes the target's name only when it is whole. The formats belong to their own modules.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from baton_engine.errors import ModelLoadError
from baton_engine.text.gguf_tokenizer import build_tokenizer, tokenizer_config
from baton_engine.weights.gguf_file import GGUFFile
from baton_engine.weights.safetensors_writer import (
    INDEX_FILE,
    Shard,
    index_document,
    plan_shards,
    write_shard,
)

MAX_SHARD_BYTES: Final = 1_000_000_000


@dataclass(frozen=True)
class ConversionProgress:
    """Sent after each tensor. Bytes are those of the converted weights."""

    tensor_name: str
    tensors_done: int
    tensors_total: int
    bytes_done: int
    bytes_total: int


ProgressCallback = Callable[[ConversionProgress], None]


def convert_gguf(
    source: Path,
    target: Path,
    *,
    on_progress: ProgressCallback | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
    replace: bool = False,
) -> Path:
    """Write the model in `source` to the folder `target` as bfloat16 safetensors; returns `target`.

    `target` appears only when complete. Raises ModelLoadError if `source` can't be converted exactly, and
    FileExistsError if `target` exists and `replace` is not set.
    """
    if target.exists() and not replace:
        raise FileExistsError(f"{target} exists; remove it or ask for it to be replaced")
    model = GGUFFile(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    with _workspace(target) as workspace:
        _write_text_files(model, workspace)
        _write_weights(model, workspace, max_shard_bytes, on_progress)
        workspace.chmod(0o755)  # mkdtemp makes it private; a model folder is for every service
        _put_in_place(workspace, target)
    return target


@contextmanager
def _workspace(target: Path) -> Generator[Path]:
    """A temporary folder beside `target`, gone afterwards; those of conversions that were killed go first.

    The lock on the folder itself says that its conversion lives: it ends with the process, however that ends.
    """
    prefix = f".{target.name}.partial-"
    for abandoned in target.parent.glob(f"{prefix}*"):
        with _locked(abandoned) as is_abandoned:
            if is_abandoned:
                shutil.rmtree(abandoned, ignore_errors=True)
    workspace = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        with _locked(workspace):
            yield workspace
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Generator[bool]:
    """Hold the lock on a folder; False if somebody else does."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield _take_lock(descriptor)
    finally:
        os.close(descriptor)


def _take_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_text_files(model: GGUFFile, folder: Path) -> None:
    build_tokenizer(model.metadata).save(str(folder / "tokenizer.json"), pretty=False)
    _write_json(folder / "tokenizer_config.json", tokenizer_config(model.metadata))
    _write_json(folder / "config.json", model.config)
    _write_json(folder / "generation_config.json", model.generation_defaults)


def _write_weights(
    model: GGUFFile, folder: Path, max_shard_bytes: int, on_progress: ProgressCallback | None
) -> None:
    shapes, dtype = model.tensor_shapes(), torch.bfloat16
    shards = plan_shards(shapes, dtype, max_shard_bytes)
    index = index_document(shards, shapes, dtype)
    report = _Reporter(on_progress, len(shapes), index["metadata"]["total_size"])
    for shard in shards:
        shard_shapes = {name: shapes[name] for name in shard.names}
        write_shard(folder / shard.file_name, shard_shapes, dtype, _reported(model, shard, report))
    if len(shards) > 1:
        _write_json(folder / INDEX_FILE, index)


def _reported(model: GGUFFile, shard: Shard, report: _Reporter) -> Iterator[tuple[str, torch.Tensor]]:
    for name in shard.names:
        tensor = model.tensor(name)
        yield name, tensor
        report.wrote(name, tensor.numel() * torch.bfloat16.itemsize)


class _Reporter:
    """Counts what was written and tells the caller."""

    def __init__(self, callback: ProgressCallback | None, tensors_total: int, bytes_total: int) -> None:
        self._callback = callback
        self._tensors_total = tensors_total
        self._bytes_total = bytes_total
        self._tensors_done = 0
        self._bytes_done = 0

    def wrote(self, name: str, num_bytes: int) -> None:
        self._tensors_done += 1
        self._bytes_done += num_bytes
        if self._callback is not None:
            self._callback(
                ConversionProgress(
                    name, self._tensors_done, self._tensors_total, self._bytes_done, self._bytes_total
                )
            )


def _write_json(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _put_in_place(workspace: Path, target: Path) -> None:
    """Give the finished folder its name; an old one makes way first and is deleted last."""
    if not target.exists():
        workspace.rename(target)
        return
    retired = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
    target.rename(retired / target.name)
    workspace.rename(target)
    shutil.rmtree(retired, ignore_errors=True)


def _print_progress(progress: ConversionProgress) -> None:
    step = max(1, progress.tensors_total // 20)
    if progress.tensors_done % step and progress.tensors_done != progress.tensors_total:
        return
    percent = 100 * progress.bytes_done // max(1, progress.bytes_total)
    megabytes = f"{progress.bytes_done / 1e6:,.0f} of {progress.bytes_total / 1e6:,.0f} MB"
    counted = f"tensor {progress.tensors_done}/{progress.tensors_total}"
    sys.stderr.write(f"converting: {percent:3d} %  {megabytes}  {counted}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line; 0 when the folder is there, 1 with a sentence on stderr otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m baton_engine.weights.convert", description="GGUF → HF folder"
    )
    parser.add_argument("source", type=Path, help="a .gguf file")
    parser.add_argument("target", type=Path, help="the folder to make")
    parser.add_argument("--replace", action="store_true", help="replace the folder if it exists")
    options = parser.parse_args(arguments)
    try:
        convert_gguf(options.source, options.target, on_progress=_print_progress, replace=options.replace)
    except (ModelLoadError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
