"""A model folder: whole, or refused with the file that is wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from baton_engine.errors import ModelLoadError
from baton_engine.weights import open_checkpoint

A, B = torch.tensor([1.0, 2.0], dtype=torch.bfloat16), torch.tensor([[3.0]], dtype=torch.float32)
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
INDEX = "model.safetensors.index.json"


def single(folder: Path) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 2}))
    save_file({"a": A, "b": B}, folder / "model.safetensors")
    return folder


def sharded(folder: Path, weight_map: Any = None) -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"a": A}, folder / ONE)
    save_file({"b": B}, folder / TWO)
    document = {"weight_map": {"a": ONE, "b": TWO} if weight_map is None else weight_map}
    (folder / INDEX).write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("layout", [single, sharded])
def test_tensors_come_with_name_value_and_dtype(tmp_path: Path, layout: Any) -> None:
    checkpoint = open_checkpoint(layout(tmp_path))
    assert checkpoint.tensor_names() == {"a", "b"}
    tensors = dict(checkpoint.tensors())
    assert (tensors["a"].dtype, tensors["b"].dtype) == (torch.bfloat16, torch.float32)
    assert torch.equal(tensors["a"], A)
    assert torch.equal(tensors["b"], B)


def test_config_and_generation_defaults(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(single(tmp_path))
    assert checkpoint.config == {"model_type": "llama", "hidden_size": 2}
    assert checkpoint.generation_defaults == {}
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.5}')
    assert open_checkpoint(tmp_path).generation_defaults == {"temperature": 0.5}


@pytest.mark.parametrize(
    "name",
    ["../secret.safetensors", "/etc/x.safetensors", "sub/x.safetensors", "..\\x.safetensors", "..", "", 5],
)
def test_an_index_that_points_out_of_its_folder_is_refused(tmp_path: Path, name: Any) -> None:
    save_file({"a": A}, tmp_path / "secret.safetensors")
    folder = tmp_path / "model"
    folder.mkdir()
    with pytest.raises(ModelLoadError, match=r"plain \.safetensors name"):
        open_checkpoint(sharded(folder, {"a": name, "b": TWO}))


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / TWO).unlink()
    with pytest.raises(ModelLoadError, match=f"{TWO} is missing"):
        open_checkpoint(tmp_path)


def test_a_shard_of_another_model_is_named(tmp_path: Path) -> None:
    sharded(tmp_path)
    save_file({"c": A}, tmp_path / "model-00003-of-00003.safetensors")
    with pytest.raises(ModelLoadError, match="model-00003-of-00003"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "message"),
    [
        ({"a": ONE, "b": TWO, "c": TWO}, "'c' is not in it"),
        ({"a": ONE, "b": ONE}, "'b' is not in it"),
        ({}, "no weight_map"),
        ([], "no weight_map"),
    ],
)
def test_an_index_that_does_not_fit_its_shards(tmp_path: Path, weight_map: Any, message: str) -> None:
    sharded(tmp_path, weight_map)
    if weight_map == {"a": ONE, "b": ONE}:
        (tmp_path / TWO).unlink()
    with pytest.raises(ModelLoadError, match=message):
        open_checkpoint(tmp_path)


def test_a_tensor_that_the_index_leaves_out(tmp_path: Path) -> None:
    sharded(tmp_path)
    save_file({"b": B, "stray": A}, tmp_path / TWO)
    with pytest.raises(ModelLoadError, match=f"'stray' is not in {INDEX}"):
        open_checkpoint(tmp_path)


def test_both_layouts_at_once_are_refused(tmp_path: Path) -> None:
    sharded(single(tmp_path))
    with pytest.raises(ModelLoadError, match="both"):
        open_checkpoint(tmp_path)


def test_shards_without_their_index(tmp_path: Path) -> None:
    sharded(tmp_path)
    (tmp_path / INDEX).unlink()
    with pytest.raises(ModelLoadError, match=r"no model\.safetensors\.index\.json"):
        open_checkpoint(tmp_path)


def test_no_weights_at_all(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelLoadError, match="no safetensors"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_weights_that_were_cut_short(tmp_path: Path, share: float) -> None:
    file = single(tmp_path) / "model.safetensors"
    raw = file.read_bytes()
    file.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(ModelLoadError, match="not a whole safetensors file"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "config.json is missing"),
        ("{", "can't be read as JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "no model_type"),
        ('{"model_type": "llama", "quantization_config": {"quant_method": "awq"}}', "'awq'"),
    ],
)
def test_a_config_that_can_not_be_used(tmp_path: Path, content: str | None, message: str) -> None:
    file = single(tmp_path) / "config.json"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        open_checkpoint(tmp_path)
