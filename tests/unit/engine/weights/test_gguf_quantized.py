"""What a GGUF file holds quantised reaches the kernels so: against the dequantised values, type by type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind
from gguf.quants import dequantize, quantize

from baton_engine.layers.quantized import QuantizedWeight
from baton_engine.models import build_model
from baton_engine.weights.gguf_file import GGUFFile
from baton_engine.weights.gguf_quantized import exact_form
from tests.support.tiny_gguf import model_metadata, model_tensors, tiny_gguf, write_gguf

CPU = torch.device("cpu")
UP = "model.layers.0.mlp.up_proj.weight"


def raw_blocks(kind: Kind, rows: int = 6, columns: int = 512) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random bits in every field, except that the float16 factors (first in a block; second too where there
    are two; last in Q6_K) are ordinary numbers."""
    random = np.random.default_rng(0)
    block, size = gguf.constants.GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    factors = random.uniform(0.001, 0.1, (2, *raw.shape[:2])).astype(np.float16)
    for place, factor in zip({Kind.Q6_K: [208]}.get(kind, [0, 2]), factors, strict=False):
        if place == 0 or kind in (Kind.Q4_1, Kind.Q5_1, Kind.Q4_K, Kind.Q5_K, Kind.Q6_K):
            raw[:, :, place : place + 2] = factor[..., None].view(np.uint8)
    return raw.reshape(rows, -1)


@pytest.mark.parametrize(
    ("kind", "bits"), [(Kind.Q8_0, 8), (Kind.Q5_0, 8), (Kind.Q4_0, 4), (Kind.Q4_1, 4)], ids=str
)
def test_what_fits_is_taken_exactly(kind: Kind, bits: int) -> None:
    raw = raw_blocks(kind)
    weight = exact_form(raw, kind, (6, 512))
    assert weight is not None
    assert weight.bits == bits
    assert torch.equal(weight.floats(), torch.from_numpy(dequantize(raw, kind)))


def test_q4_k_is_off_by_the_rounding_of_its_scales_only() -> None:
    """Half a unit in the eleventh bit of scale × 15 and of the minimum."""
    raw = raw_blocks(Kind.Q4_K)
    weight = exact_form(raw, Kind.Q4_K, (6, 512))
    assert weight is not None
    assert weight.minima is not None
    exact = torch.from_numpy(dequantize(raw, Kind.Q4_K))
    error = (weight.floats() - exact).abs().view(6, 16, 32).amax(-1)
    allowed = 2**-11 * (15 * weight.scales.float() + weight.minima.float().abs()) + 1e-6
    assert (error <= allowed).all()
    assert weight.bits == 4


@pytest.mark.parametrize("kind", [Kind.Q6_K, Kind.Q5_K, Kind.Q5_1], ids=str)
def test_finer_types_become_int8(tmp_path: Path, kind: Kind) -> None:
    raw = raw_blocks(kind)
    path = write_gguf(
        tmp_path / "m.gguf", model_metadata(), {"blk.0.ffn_up.weight": raw}, {"blk.0.ffn_up.weight": kind}
    )
    weight = dict(GGUFFile(path).stored_tensors())[UP]
    assert isinstance(weight, QuantizedWeight)
    assert weight.bits == 8
    exact = torch.from_numpy(dequantize(raw, kind)).view(6, 16, 32)
    error = (weight.floats().view(6, 16, 32) - exact).abs().amax(-1)
    assert (error <= exact.abs().amax(-1) / 250).all()


def test_a_whole_file_stays_quantised_and_q_and_k_go_back_to_their_places(tmp_path: Path) -> None:
    plain = model_tensors(tied=True)
    kinds = {"attn_v": Kind.Q4_0, "ffn_down": Kind.F16, "attn_output": Kind.Q4_1}
    stored: dict[str, np.ndarray[Any, Any]] = {}
    types: dict[str, Kind] = {}
    for name, values in plain.items():
        if values.ndim == 2:
            types[name] = kinds.get(name.split(".")[-2], Kind.Q8_0)
            stored[name] = quantize(values, types[name])
            if types[name] != Kind.F16:
                stored[name] = stored[name].view(np.uint8)
        else:
            stored[name] = values
    types = {name: kind for name, kind in types.items() if kind != Kind.F16}
    source = GGUFFile(write_gguf(tmp_path / "m.gguf", model_metadata(), stored, types))
    exact = dict(source.tensors())
    weights = dict(source.stored_tensors())
    for name, weight in weights.items():
        floats = weight.floats() if isinstance(weight, QuantizedWeight) else weight
        assert torch.equal(floats, exact[name]), name
    model = build_model(source, torch.bfloat16, CPU, pack=False)
    layer = model.layers[0]
    forms = [
        form_of(one.weight)
        for one in (layer.qkv, layer.output, layer.mlp.gate_up, layer.mlp.down, model.head)
    ]
    assert forms == [8, 4, 8, "bfloat16", 8]  # v came in 4 bits, q and k in 8: joined they have 8
    assert model.embedding is model.head.weight


def test_a_narrower_width_can_be_asked_for_and_a_wider_one_changes_nothing(tmp_path: Path) -> None:
    plain = model_tensors(tied=True)
    stored = {n: quantize(v, Kind.Q4_1).view(np.uint8) if "ffn_up" in n else v for n, v in plain.items()}
    types = {name: Kind.Q4_1 for name in plain if "ffn_up" in name}
    source = GGUFFile(write_gguf(tmp_path / "m.gguf", model_metadata(), stored, types))
    forms = {
        bits: [form_of(one.weight) for one in (model.layers[0].qkv, model.layers[0].mlp.gate_up, model.head)]
        for bits in (None, 8, 4)
        for model in [build_model(source, torch.bfloat16, CPU, pack=False, bits=bits)]
    }
    assert forms == {None: ["bfloat16", "bfloat16", "bfloat16"], 8: [8, 8, 8], 4: [8, 4, 8]}


def test_torch_gets_floats_unless_a_width_is_asked_for(tmp_path: Path) -> None:
    source = GGUFFile(tiny_gguf(tmp_path / "m.gguf"))
    assert form_of(build_model(source, torch.float32, CPU).head.weight) == "float32"
    assert form_of(build_model(source, torch.float32, CPU, bits=4).layers[0].mlp.down.weight) == 4


def form_of(weight: torch.Tensor | QuantizedWeight) -> int | str:
    return weight.bits if isinstance(weight, QuantizedWeight) else str(weight.dtype).removeprefix("torch.")
