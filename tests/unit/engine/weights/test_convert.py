"""GGUF → Hugging Face folder: the same model, complete or not there at all."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from baton_engine.errors import ModelLoadError
from baton_engine.text import Tokenizer
from baton_engine.weights import open_checkpoint
from baton_engine.weights.convert import ConversionProgress, convert_gguf, main
from baton_engine.weights.gguf_file import GGUFFile
from baton_engine.weights.safetensors_writer import plan_shards
from tests.support.tiny_gguf import tiny_gguf


@pytest.mark.parametrize("max_shard_bytes", [10**9, 10_000])
def test_the_folder_holds_the_same_model(tmp_path: Path, max_shard_bytes: int) -> None:
    source = tiny_gguf(tmp_path / "m.gguf", "qwen2", tied=False)
    folder = convert_gguf(source, tmp_path / "model", max_shard_bytes=max_shard_bytes)
    converted, original = open_checkpoint(folder), open_checkpoint(source)
    tensors = dict(converted.tensors())
    assert converted.config == original.config
    assert converted.generation_defaults == original.generation_defaults
    assert tensors.keys() == original.tensor_names()
    for name, tensor in original.tensors():
        assert torch.equal(tensors[name], tensor.bfloat16())
    ids = Tokenizer.load(source).apply_chat_template([{"role": "user", "content": "a 1é"}])
    assert Tokenizer.load(folder).apply_chat_template([{"role": "user", "content": "a 1é"}]) == ids


def test_files_are_those_of_a_hugging_face_folder(tmp_path: Path) -> None:
    folder = convert_gguf(tiny_gguf(tmp_path / "m.gguf"), tmp_path / "one")
    names = {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert {file.name for file in folder.iterdir()} == names
    assert folder.stat().st_mode & 0o777 == 0o755


def test_shards_are_readable_by_the_safetensors_library_and_named_by_the_index(tmp_path: Path) -> None:
    folder = convert_gguf(tiny_gguf(tmp_path / "m.gguf"), tmp_path / "many", max_shard_bytes=15_000)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    shards = sorted(set(index["weight_map"].values()))
    assert len(shards) > 2
    assert shards[0] == f"model-00001-of-{len(shards):05d}.safetensors"
    held = {name: file for file in shards for name in load_file(folder / file)}
    assert held == index["weight_map"]
    total = sum(tensor.nbytes for file in shards for tensor in load_file(folder / file).values())
    assert index["metadata"]["total_size"] == total


def test_shards_are_filled_in_order_and_a_large_tensor_stands_alone() -> None:
    shapes = {"a": (10,), "b": (10,), "c": (100,), "d": (1,)}
    shards = plan_shards(shapes, torch.bfloat16, max_shard_bytes=40)
    assert [shard.names for shard in shards] == [("a", "b"), ("c",), ("d",)]
    assert [shard.file_name for shard in plan_shards(shapes, torch.bfloat16, 10**6)] == ["model.safetensors"]


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    steps: list[ConversionProgress] = []
    convert_gguf(tiny_gguf(tmp_path / "m.gguf"), tmp_path / "model", on_progress=steps.append)
    last = steps[-1]
    assert (last.tensors_done, last.bytes_done) == (last.tensors_total, last.bytes_total)
    assert len(steps) == last.tensors_total == 2 + 2 * 9
    assert [step.bytes_done for step in steps] == sorted(step.bytes_done for step in steps)


def test_a_failure_half_way_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tiny_gguf(tmp_path / "m.gguf")
    read, calls = GGUFFile.tensor, 0

    def failing(self: GGUFFile, name: str) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 5:
            raise OSError("disk full")
        return read(self, name)

    monkeypatch.setattr(GGUFFile, "tensor", failing)
    with pytest.raises(OSError, match="disk full"):
        convert_gguf(source, tmp_path / "model")
    assert [file.name for file in tmp_path.iterdir()] == ["m.gguf"]


def test_what_a_killed_conversion_left_is_removed_and_a_living_one_is_left_alone(tmp_path: Path) -> None:
    source = tiny_gguf(tmp_path / "m.gguf")
    dead, alive = tmp_path / ".model.partial-dead", tmp_path / ".model.partial-alive"
    dead.mkdir()
    alive.mkdir()
    descriptor = os.open(alive, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        convert_gguf(source, tmp_path / "model")
    finally:
        os.close(descriptor)
    assert {file.name for file in tmp_path.iterdir()} == {"m.gguf", "model", ".model.partial-alive"}


def test_a_folder_that_exists_is_kept_unless_told_to_replace_it(tmp_path: Path) -> None:
    source, target = tiny_gguf(tmp_path / "m.gguf"), tmp_path / "model"
    target.mkdir()
    (target / "old").touch()
    with pytest.raises(FileExistsError, match="exists"):
        convert_gguf(source, target)
    assert (target / "old").exists()
    convert_gguf(source, target, replace=True)
    assert not (target / "old").exists()
    assert (target / "config.json").exists()
    assert {file.name for file in tmp_path.iterdir()} == {"m.gguf", "model"}


def test_a_vocabulary_that_can_not_be_exact_makes_no_folder(tmp_path: Path) -> None:
    source = tiny_gguf(tmp_path / "m.gguf", **{"tokenizer.ggml.pre": "made-up"})
    with pytest.raises(ModelLoadError, match="made-up"):
        convert_gguf(source, tmp_path / "model")
    assert [file.name for file in tmp_path.iterdir()] == ["m.gguf"]


def test_the_command_says_what_it_does_and_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tiny_gguf(tmp_path / "m.gguf")
    assert main([str(source), str(tmp_path / "model")]) == 0
    assert "100 %" in capsys.readouterr().err
    assert main([str(source), str(tmp_path / "model")]) == 1
    assert "exists" in capsys.readouterr().err
    assert main([str(tmp_path / "absent.gguf"), str(tmp_path / "other")]) == 1
    assert "absent.gguf" in capsys.readouterr().err
