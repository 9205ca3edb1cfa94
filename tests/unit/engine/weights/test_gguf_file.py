"""GGUF files of another writer, quantised blocks of known values, and files that are not whole."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from baton_engine.errors import ModelLoadError
from baton_engine.weights import open_checkpoint
from baton_engine.weights.gguf_config import hf_config, hf_generation_defaults, rope_scaling_from_factors
from baton_engine.weights.gguf_file import GGUFFile
from tests.support.tiny_gguf import model_metadata, model_tensors, tiny_gguf, write_gguf


def half(value: float) -> bytes:
    return struct.pack("<e", value)


# One block of each format, with values worked out by hand from the format's definition.
BLOCKS: dict[Kind, tuple[bytes, list[float]]] = {
    # 32 × q4 − 8, scale 0.5: low halves of the bytes first, then high halves.
    Kind.Q4_0: (half(0.5) + bytes([0x1F] * 16), [3.5] * 16 + [-3.5] * 16),
    # 32 × q4, scale 0.5, minimum −2.
    Kind.Q4_1: (half(0.5) + half(-2) + bytes([0x1F] * 16), [5.5] * 16 + [-1.5] * 16),
    # 32 × q5 − 16: the fifth bits lie apart, one a value; here set for the first 16 values only.
    Kind.Q5_0: (half(0.25) + struct.pack("<I", 0x0000FFFF) + bytes([0x12] * 16), [0.5] * 16 + [-3.75] * 16),
    Kind.Q8_0: (half(0.5) + bytes([2, 254] * 16), [1.0, -1.0] * 16),
    # 256 values in 8 groups, scales 1, minima 0 (six bits each, packed): value = scale × q4 × group scale.
    Kind.Q4_K: (
        half(0.5) + half(1) + bytes([1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1]) + bytes([0x21] * 128),
        ([0.5] * 32 + [1.0] * 32) * 4,
    ),
    # 256 × q6 − 32: low four bits, high two bits, 16 group scales (here 2), then the scale.
    Kind.Q6_K: (
        bytes([0x10] * 128) + bytes([0xAA] * 64) + bytes([2] * 16) + half(0.5),
        ([0.0] * 64 + [1.0] * 64) * 2,
    ),
    Kind.F16: (half(1.5) * 32, [1.5] * 32),
    Kind.BF16: (bytes([0xC0, 0x3F] * 32), [1.5] * 32),
    Kind.F32: (struct.pack("<f", 1.1) * 32, [1.1] * 32),
}


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_a_block_of_known_values(tmp_path: Path, kind: Kind) -> None:
    raw, values = BLOCKS[kind]
    rows = np.frombuffer(raw * 2, dtype=np.uint8).reshape(2, -1)
    name = "blk.0.ffn_up.weight"
    path = write_gguf(tmp_path / "m.gguf", model_metadata(), {name: rows}, {name: kind})
    tensor = dict(open_checkpoint(path).tensors())["model.layers.0.mlp.up_proj.weight"]
    assert tensor.dtype == torch.float32
    torch.testing.assert_close(tensor, torch.tensor([values, values]), rtol=0, atol=1e-7)


def test_config_of_a_llama_file(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf"))
    wanted = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"],
        "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 50000.0, "rope_scaling": None,
        "tie_word_embeddings": True, "vocab_size": 267, "attention_bias": False, "eos_token_id": 258,
    }  # fmt: skip
    assert {key: checkpoint.config[key] for key in wanted} == wanted
    assert checkpoint.generation_defaults == {"bos_token_id": 256, "eos_token_id": [258, 256]}


def test_tensor_names_and_biases_of_a_qwen2_file(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(tiny_gguf(tmp_path / "m.gguf", "qwen2", tied=False))
    names = checkpoint.tensor_names()
    assert len(names) == 3 + 2 * 12
    assert {"model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"} < names
    assert {"model.layers.1.self_attn.k_proj.bias", "model.layers.1.post_attention_layernorm.weight"} < names
    assert checkpoint.config["tie_word_embeddings"] is False
    assert names == {name for name, _ in checkpoint.tensors()}


def permuted(rows: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """What llama.cpp's converter does to q and k: row `half × d/2 + i` of each head moves to `2 i + half`."""
    out = np.empty_like(rows)
    size = rows.shape[0] // heads
    for row in range(rows.shape[0]):
        head, place = divmod(row, size)
        half_number, pair = divmod(place, size // 2)
        out[head * size + 2 * pair + half_number] = rows[row]
    return out


@pytest.mark.parametrize(("architecture", "moved"), [("llama", True), ("qwen2", False)])
def test_llamas_q_and_k_rows_go_back_to_their_places(tmp_path: Path, architecture: str, moved: bool) -> None:
    original = model_tensors(architecture)
    stored = dict(original)
    if moved:
        for layer in range(2):
            for letter, heads in (("q", 4), ("k", 2)):
                name = f"blk.{layer}.attn_{letter}.weight"
                stored[name] = permuted(original[name], heads)
    path = write_gguf(tmp_path / "m.gguf", model_metadata(architecture), stored)
    tensors = dict(open_checkpoint(path).tensors())
    for letter in "qkv":
        tensor = tensors[f"model.layers.1.self_attn.{letter}_proj.weight"]
        np.testing.assert_array_equal(tensor.numpy(), original[f"blk.1.attn_{letter}.weight"])


def test_the_header_equals_what_the_gguf_package_reads(tmp_path: Path) -> None:
    path = tiny_gguf(tmp_path / "m.gguf", tied=False)
    theirs, ours = gguf.GGUFReader(path), GGUFFile(path)
    for key, value in ours.metadata.items():
        assert theirs.fields[key].contents() == value
    for tensor in theirs.tensors:
        if "attn_q" not in tensor.name and "attn_k" not in tensor.name:
            name = next(n for n, info in ours._tensors.items() if info.name == tensor.name)
            np.testing.assert_array_equal(ours.tensor(name).numpy(), tensor.data)


def test_llama3_rope_factors_become_its_parameters_again() -> None:
    config = {"rope_theta": 500000.0}
    wavelengths = 2 * np.pi * 500000.0 ** (np.arange(0, 64, 2) / 64)
    factors = []
    for wavelength in wavelengths:  # as Llama 3.1's code states it
        if wavelength < 8192 / 4:
            factors.append(1.0)
        elif wavelength > 8192 / 1:
            factors.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            factors.append(1 / ((1 - smooth) / 8 + smooth))
    scaling = rope_scaling_from_factors(np.array(factors, dtype=np.float32), config)
    assert scaling == {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    assert rope_scaling_from_factors(np.ones(32, dtype=np.float32), config) is None
    with pytest.raises(ModelLoadError, match="RoPE"):
        rope_scaling_from_factors(np.linspace(1, 8, 32, dtype=np.float32), config)


def test_rope_factors_in_a_file_reach_the_config_and_are_no_tensor(tmp_path: Path) -> None:
    tensors = model_tensors() | {"rope_freqs.weight": np.ones(4, dtype=np.float32)}
    checkpoint = open_checkpoint(write_gguf(tmp_path / "m.gguf", model_metadata(), tensors))
    assert checkpoint.config["rope_scaling"] is None
    assert not any("rope" in name for name in checkpoint.tensor_names())


def test_rope_scaling_of_the_metadata() -> None:
    scaled = model_metadata(
        **{
            "llama.rope.scaling.type": "yarn",
            "llama.rope.scaling.factor": 4.0,
            "llama.rope.scaling.original_context_length": 64,
        }
    )
    assert hf_config(scaled, frozenset())["rope_scaling"] == {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"general.architecture": "mamba"}, "'mamba'"),
        ({"llama.expert_count": 8}, "experts"),
        ({"llama.rope.scaling.type": "longrope"}, "'longrope'"),
    ],
)
def test_models_that_would_run_wrong_are_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        hf_config(model_metadata() | change, frozenset())


def test_a_missing_key_is_named() -> None:
    metadata = model_metadata()
    del metadata["llama.block_count"]
    with pytest.raises(ModelLoadError, match=r"llama\.block_count"):
        hf_config(metadata, frozenset())


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", model_metadata(), {"mystery.weight": np.ones(32, dtype=np.float32)}
    )
    with pytest.raises(ModelLoadError, match=r"mystery\.weight"):
        open_checkpoint(path)


def test_end_ids_are_named_ones_first_and_each_once() -> None:
    metadata = model_metadata(**{"tokenizer.ggml.eot_token_id": 256})
    assert hf_generation_defaults(metadata)["eos_token_id"] == [258, 256]


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.3, 0.999])
def test_a_file_that_was_cut_short_is_refused(tmp_path: Path, share: float) -> None:
    path = tiny_gguf(tmp_path / "m.gguf")
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(ModelLoadError, match=r"m\.gguf"):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"PK\x03\x04" + bytes(40), "begin with"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(40), "version 1"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 2**63) + bytes(40), "inside its header"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**62) + bytes(40), "inside its header"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"k" + struct.pack("<I", 99) + bytes(40),
            "unknown type 99",
        ),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff" + bytes(40), "UTF-8"),
        (
            b"GGUF" + struct.pack("<IQQQ", 3, 1, 0, 1) + b"t" + struct.pack("<I", 9) + bytes(99),
            "9 dimensions",
        ),
    ],
)
def test_a_hostile_header_is_refused(tmp_path: Path, head: bytes, message: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(head)
    with pytest.raises(ModelLoadError, match=message):
        open_checkpoint(path)


def test_a_tensor_type_that_can_not_be_dequantised_is_named(tmp_path: Path) -> None:
    name = "blk.0.ffn_up.weight"
    rows = np.zeros((2, 4), dtype=np.int32)
    path = write_gguf(tmp_path / "m.gguf", model_metadata(), {name: rows})
    with pytest.raises(ModelLoadError, match="I32"):
        dict(open_checkpoint(path).tensors())


def test_a_path_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="does not exist"):
        open_checkpoint(tmp_path / "absent")
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ModelLoadError, match="neither"):
        open_checkpoint(tmp_path / "notes.txt")
