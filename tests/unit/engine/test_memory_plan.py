"""The bill before the loading: known sums, what is refused and with what advice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from baton_engine import ConfigError, EngineConfig, ModelLoadError, plan
from baton_engine.layers.attention import KVShape
from baton_engine.memory_plan import MemoryPlan, plan_memory, planned_weights, work_bytes
from baton_engine.models import read_spec
from tests.support.native_model import native_checkpoint, native_forward, usable_isas
from tests.support.tiny_model import TinyCheckpoint, tiny_engine

CPU = torch.device("cpu")
GIB = 2**30
LLAMA_3_8B: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128_256, "hidden_size": 4096, "intermediate_size": 14_336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
    "tie_word_embeddings": False, "hidden_act": "silu",
}  # fmt: skip


class Source:
    def __init__(self, bits: dict[str, int] | None = None) -> None:
        self.config = LLAMA_3_8B
        self.bits = bits or {}

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        raise AssertionError("a plan reads no weights")

    def stored_bits(self, name: str) -> int | None:
        return self.bits.get(name.split(".")[-2])


def planned(free: int, source: Source | None = None, share_kv: bool = False, **changes: Any) -> MemoryPlan:
    config = EngineConfig(model="llama-3-8b", **changes)
    source = source or Source()
    spec = read_spec(source)
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, config.block_size, torch.bfloat16)
    weights = planned_weights(config, source, torch.bfloat16, CPU, native=True)
    return plan_memory(config, spec, shape, weights, free, share_kv)


def test_llama_3_8b_by_hand() -> None:
    """8,030,261,248 parameters of two bytes (vectors four); 2 x 32 x 8 x 128 x 2 bytes of KV a token."""
    one = planned(free=90 * GIB)
    vectors = 65 * 4096
    assert one.weight_bytes == 2 * (8_030_261_248 - vectors) + 4 * vectors
    assert one.kv_bytes_per_token == 128 * 1024
    assert one.num_blocks == 64 * 8192 // 16  # all 64 seats
    assert one.chats(4096) == 128
    assert one.total_bytes <= one.budget_bytes == int(90 * GIB * 0.92)


def test_a_device_of_its_own_is_filled_and_a_machine_is_shared() -> None:
    filled, shared = planned(free=32 * GIB), planned(free=32 * GIB, share_kv=True)
    left = filled.budget_bytes - filled.weight_bytes - filled.work_bytes
    assert filled.num_blocks == left // (16 * 128 * 1024)
    assert shared.kv_bytes == 2 * GIB
    assert planned(free=19 * GIB, share_kv=True).kv_bytes < 2 * GIB


def test_what_does_not_fit_is_refused_with_the_bill_and_what_would() -> None:
    with pytest.raises(ModelLoadError) as refusal:
        planned(free=12 * GIB)
    for words in ("llama-3-8b does not fit", "weights 15,317 MiB", "131,072 bytes", "of 11,305 MiB", "int8"):
        assert words in str(refusal.value)
    assert planned(free=12 * GIB, quantization="int8").total_bytes <= 11_305 * 2**20
    with pytest.raises(ModelLoadError, match="With quantization int4 the weights take"):
        planned(free=8 * GIB, quantization="int8")
    with pytest.raises(ModelLoadError, match="a smaller model"):
        planned(free=4 * GIB, quantization="int4")
    with pytest.raises(ModelLoadError, match="lower num_blocks"):
        planned(free=8 * GIB, quantization="int4", kv_memory_bytes=16 * GIB)
    with pytest.raises(ConfigError, match="2097152 bytes"):
        planned(free=80 * GIB, kv_memory_bytes=100)


def test_a_file_counts_as_it_is_stored_and_a_joined_matrix_as_its_widest_part() -> None:
    plain = planned(free=80 * GIB).weight_bytes
    numbers = 32 * 4096 * 14_336  # of down
    assert (
        planned(80 * GIB, Source({"down_proj": 4})).weight_bytes == plain - 2 * numbers + numbers * 20 // 32
    )
    qkv = 32 * 4096 * 6144
    mixed = Source({"q_proj": 4, "k_proj": 4, "v_proj": 8})
    assert planned(80 * GIB, mixed).weight_bytes == plain - 2 * qkv + qkv * 34 // 32
    assert planned(80 * GIB, Source({"q_proj": 4})).weight_bytes == plain
    assert (
        planned(80 * GIB, mixed, quantization="int4").weight_bytes
        == planned(80 * GIB, quantization="int4").weight_bytes
    )


@pytest.mark.skipif(not usable_isas(), reason="no compiler or no AVX2 here")
@pytest.mark.parametrize("quantization", [None, "int8", "int4"])
@pytest.mark.parametrize("tied", [False, True])
def test_the_kernels_hold_what_was_planned(quantization: str | None, tied: bool) -> None:
    checkpoint = native_checkpoint(tie_word_embeddings=tied)
    config = EngineConfig(model="tiny", quantization=quantization)
    weights = planned_weights(config, checkpoint, torch.bfloat16, CPU, native=True)
    vectors = (2 * 2 + 1) * 96 * 4
    held = native_forward(checkpoint, usable_isas()[0], quantization=quantization).weight_bytes
    assert weights.num_bytes - vectors == held


def test_an_engine_that_would_not_fit_does_not_begin_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_engine.assembly.available_bytes", lambda: 300_000)
    checkpoint = TinyCheckpoint()
    monkeypatch.setattr(checkpoint, "tensors", lambda: pytest.fail("it began to load"))
    with pytest.raises(ModelLoadError, match="tiny does not fit"):
        tiny_engine(checkpoint)


def test_work_space_grows_with_seats_and_budget() -> None:
    spec = read_spec(Source())
    small, large = (EngineConfig(model="m", max_num_seqs=s, max_num_batched_tokens=512) for s in (1, 65))
    assert work_bytes(large, spec) - work_bytes(small, spec) == 64 * 2 * 128_256 * 4


def test_the_rotary_table_is_in_the_bill_before_it_is_made() -> None:
    """cos and sin of 128 numbers, four bytes each, for every position."""
    spec = read_spec(Source())
    longer = replace(spec, rope=replace(spec.rope, max_positions=8192 + 1000))
    config = EngineConfig(model="m")
    assert work_bytes(config, longer) - work_bytes(config, spec) == 1000 * 2 * 128 * 4
    endless = Source()
    endless.config = LLAMA_3_8B | {"max_position_embeddings": 2**31 - 1}
    with pytest.raises(ModelLoadError, match="work space 2,09"):
        planned(free=90 * GIB, source=endless, max_model_len=4096)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("--memory-gib=nan", "--memory-gib is nan; it must be a number over 0"),
        ("--memory-gib=inf", "--memory-gib is inf"),
        ("--memory-gib=-inf", "--memory-gib is -inf"),
        ("--memory-gib=-4", "--memory-gib is -4.0"),
        ("--memory-gib=0", "--memory-gib is 0.0"),
        ("--chat-tokens=0", "--chat-tokens is 0; it must be 1 or more"),
    ],
)
def test_the_command_refuses_sizes_that_are_none(
    option: str,
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_3_8B))
    monkeypatch.setattr("sys.argv", ["plan", str(file), option])
    assert plan.main() == 1
    assert sentence in capsys.readouterr().err


def test_the_command_prints_the_bill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA_3_8B))
    monkeypatch.setattr("sys.argv", ["plan", str(file), "--memory-gib", "24", "--quantization", "int8"])
    assert plan.main() == 0
    printed = capsys.readouterr().out
    assert "weights 8,138 MiB" in printed
    assert "131,072 bytes" in printed
    assert "chats of 4,096 tokens at once: " in printed
    monkeypatch.setattr("sys.argv", ["plan", str(file), "--memory-gib", "24", "--kv-dtype", "int8"])
    assert plan.main() == 0
    assert "67,584 bytes" in capsys.readouterr().out  # 2 x 32 x 8 x (128 + 4)
    monkeypatch.setattr("sys.argv", ["plan", str(tmp_path / "absent.json")])
    assert plan.main() == 1
    assert "can't be read" in capsys.readouterr().err
