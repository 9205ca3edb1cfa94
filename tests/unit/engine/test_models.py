"""Logits of tiny random models against transformers, in float32, whole and in chunks over pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from baton_engine import ModelLoadError
from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_torch import TorchAttention
from baton_engine.models import build_model, supported_model_types
from baton_engine.models.decoder import DecoderModel
from baton_engine.weights import open_checkpoint
from tests.support.engine_driver import add, ask, drain, token_ids
from tests.support.tiny_model import TINY_CONFIG, TinyCheckpoint, tiny_engine

CPU = torch.device("cpu")
F32 = (torch.float32, CPU)
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
QWEN2_WINDOW = {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 10}
CASES: dict[str, dict[str, Any]] = {
    "llama": {},
    "llama tied": {"tie_word_embeddings": True},
    "llama biased, wide heads": {"attention_bias": True, "head_dim": 16},
    "llama, biases in the MLP": {"mlp_bias": True},
    "llama, newer keys": {"rope_parameters": LLAMA3_SCALING | {"rope_theta": 500_000.0}},
    "llama, no groups": {"num_key_value_heads": 4},
    "llama, one group": {"num_key_value_heads": 1},
    "llama, linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama 3 scaling": {"rope_scaling": LLAMA3_SCALING, "rope_theta": 500_000.0},
    "qwen2": {"model_type": "qwen2", "rope_theta": 1_000_000.0},
    "qwen2 tied": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2, a window from layer 1 on": QWEN2_WINDOW | {"max_window_layers": 1},
    "qwen2, a window by layer types": QWEN2_WINDOW | {"layer_types": ["sliding_attention", "full_attention"]},
    "qwen3": {"model_type": "qwen3", "head_dim": 16},
    "qwen3 biased, tied": {
        "model_type": "qwen3",
        "head_dim": 8,
        "attention_bias": True,
        "tie_word_embeddings": True,
    },
    "qwen3 without head_dim, a window": QWEN2_WINDOW | {"model_type": "qwen3", "max_window_layers": 0},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "mistral, a window": {"model_type": "mistral", "sliding_window": 7},
    "mistral, wide heads, tied": {"model_type": "mistral", "head_dim": 16, "tie_word_embeddings": True},
    "yarn": {"rope_scaling": YARN},
    "yarn, tuned": {
        "rope_scaling": YARN | {"beta_fast": 4, "beta_slow": 2, "attention_factor": 1.5, "truncate": False}
    },
    "yarn, two scales": {"rope_scaling": YARN | {"mscale": 0.7, "mscale_all_dim": 0.3}},
    "dynamic": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
}


def reference_model(checkpoint: TinyCheckpoint) -> Any:
    config = AutoConfig.for_model(**checkpoint.config)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    missing, unexpected = model.load_state_dict(dict(checkpoint.tensors()), strict=False)
    assert not unexpected
    assert set(missing) <= {"lm_head.weight"}
    model.tie_weights()
    return model


def reference_logits(checkpoint: TinyCheckpoint, token_ids: list[int]) -> torch.Tensor:
    with torch.inference_mode():
        return reference_model(checkpoint)(torch.tensor([token_ids])).logits[0]


def our_logits(model: DecoderModel, token_ids: list[int], cuts: list[int]) -> torch.Tensor:
    """All rows, computed in chunks that end at `cuts`, over pages that lie in no order."""
    spec = model.spec
    shape = KVShape(spec.num_layers, spec.num_kv_heads, spec.head_dim, 4, torch.float32)
    attention = TorchAttention(shape, 32, CPU)
    blocks = [31, 3, 17, 8, 25, 0, 12, 30, 2, 9, 21, 5]
    rows: list[torch.Tensor] = []
    for start, end in zip([0, *cuts], [*cuts, len(token_ids)], strict=True):
        plan = attention.plan([Span(start, end - start, blocks)])
        with torch.inference_mode():
            logits = model.forward(
                torch.tensor(token_ids[start:end]),
                torch.arange(start, end),
                torch.arange(end - start),
                attention=attention,
                plan=plan,
            )
        rows.append(logits)
    return torch.cat(rows)


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_the_reference(case: str) -> None:
    checkpoint = TinyCheckpoint(config=TINY_CONFIG | CASES[case])
    token_ids = torch.randint(0, 260, (45,), generator=torch.Generator().manual_seed(1)).tolist()
    expected = reference_logits(checkpoint, token_ids)
    model = build_model(checkpoint, torch.float32, CPU)
    for cuts in ([], [1], [16, 32], [7, 8, 9, 30], list(range(40, 45))):
        assert (our_logits(model, token_ids, cuts) - expected).abs().max() <= 1e-4


@pytest.mark.parametrize("shard_bytes", [2_000, 10**9])
@pytest.mark.parametrize("case", ["llama tied", "qwen2", "qwen3"])
def test_a_folder_that_transformers_wrote(case: str, shard_bytes: int, tmp_path: Path) -> None:
    """In many files with an index, or in one: read back by each side, from the same folder."""
    checkpoint = TinyCheckpoint(config=TINY_CONFIG | CASES[case])
    written = reference_model(checkpoint)
    written.save_pretrained(tmp_path, max_shard_size=shard_bytes)
    files = len(list(tmp_path.glob("*.safetensors")))
    assert files > 3 if shard_bytes == 2_000 else files == 1
    token_ids = torch.randint(0, 260, (20,), generator=torch.Generator().manual_seed(1)).tolist()
    model = build_model(open_checkpoint(tmp_path), torch.float32, CPU)
    with torch.inference_mode():
        expected = AutoModelForCausalLM.from_pretrained(tmp_path)(torch.tensor([token_ids])).logits[0]
    assert (our_logits(model, token_ids, [5]) - expected).abs().max() <= 1e-4


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba'"),
        ({"model_type": "qwen2", "use_sliding_window": True}, "sliding_window = None"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"num_key_value_heads": 3}, "4 attention heads can't share 3 KV heads"),
        ({"hidden_size": None}, "hidden_size = None"),
        ({"hidden_size": 0}, "hidden_size = 0"),
        ({"num_hidden_layers": 10**30}, "num_hidden_layers = 1000000"),
        ({"num_hidden_layers": -1}, "num_hidden_layers = -1"),
        ({"num_attention_heads": 0}, "num_attention_heads = 0"),
        ({"num_key_value_heads": "x"}, "num_key_value_heads = 'x'"),
        ({"head_dim": 7}, "heads of 7 dimensions"),
        ({"head_dim": -2}, "head_dim = -2"),
        ({"rms_norm_eps": "x"}, "rms_norm_eps = 'x'"),
        ({"rope_theta": -1}, "rope_theta = -1"),
        ({"rope_scaling": "x"}, "'x' as RoPE parameters"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": []}}, "factor = []"),
        ({"rope_scaling": {"rope_type": "longrope", "factor": 2.0}}, "RoPE scaling 'longrope'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor = None in its RoPE scaling"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5"),
        (QWEN2_WINDOW | {"layer_types": ["full_attention"]}, "for 2 layers"),
        (QWEN2_WINDOW | {"layer_types": ["full_attention", "chunked"]}, "'chunked'"),
        (QWEN2_WINDOW | {"layer_types": 2}, "layer_types 2"),
        (QWEN2_WINDOW | {"layer_types": [{}, "full_attention"]}, "layer_types [{}"),
        (QWEN2_WINDOW | {"sliding_window": -4}, "sliding_window = -4"),
        (QWEN2_WINDOW | {"sliding_window": True}, "sliding_window = True"),
        (QWEN2_WINDOW | {"max_window_layers": "all"}, "max_window_layers = 'all'"),
        (QWEN2_WINDOW | {"max_window_layers": -1}, "max_window_layers = -1"),
        ({"model_type": "qwen3", "layer_types": ["sliding_attention"] * 2}, "use_sliding_window is off"),
        ({"model_type": "mistral", "sliding_window": -7}, "sliding_window = -7"),
        ({"model_type": "mistral", "sliding_window": "7"}, "sliding_window = '7'"),
        ({"model_type": "mistral", "sliding_window": 0}, "sliding_window = 0"),
        (
            {"model_type": "mistral", "sliding_window": 7, "layer_types": ["full_attention"] * 2},
            "sliding_window = 7 and layer_types that say otherwise",
        ),
    ],
)
def test_what_we_cannot_run_is_refused_with_a_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ModelLoadError, match=re.escape(sentence)):
        build_model(TinyCheckpoint(config=TINY_CONFIG | changes), torch.float32, CPU)


class Edited(TinyCheckpoint):
    def __init__(self, edit: str) -> None:
        super().__init__()
        self.edit = edit

    def tensors(self) -> Any:
        for name, tensor in super().tensors():
            if self.edit == "lose" and name == "model.layers.1.mlp.up_proj.weight":
                continue
            yield name, tensor[:, :-1] if self.edit == "cut" and name == "lm_head.weight" else tensor
        if self.edit == "add":
            yield "model.layers.0.self_attn.q_norm.weight", torch.ones(8)


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        ("lose", "no tensor model.layers.1.mlp.up_proj.weight"),
        ("cut", r"lm_head.weight has shape \(264, 31\)"),
        ("add", "for example model.layers.0.self_attn.q_norm.weight"),
    ],
)
def test_weights_that_do_not_fit_the_config_are_refused(edit: str, sentence: str) -> None:
    with pytest.raises(ModelLoadError, match=sentence):
        build_model(Edited(edit), torch.float32, CPU)


def test_the_families() -> None:
    assert supported_model_types() == ["llama", "mistral", "qwen2", "qwen3"]


def test_yarn_stretches_the_context_and_dynamic_does_not() -> None:
    yarn = build_model(TinyCheckpoint(config=TINY_CONFIG | {"rope_scaling": YARN | {"factor": 8.0}}), *F32)
    assert yarn.spec.max_positions == 512  # 64 × 8, over the 256 of config.json
    dynamic = {"rope_scaling": {"rope_type": "dynamic", "factor": 8.0}}
    assert build_model(TinyCheckpoint(config=TINY_CONFIG | dynamic), *F32).spec.max_positions == 256


def test_a_windowed_model_answers_the_same_however_it_is_computed() -> None:
    checkpoint = TinyCheckpoint(config=TINY_CONFIG | {"model_type": "mistral", "sliding_window": 7})
    answers: list[list[list[int]]] = []
    for budget in (256, 8):
        engine = tiny_engine(checkpoint, max_num_batched_tokens=budget)
        for index in range(3):
            add(engine, ask(f"r{index}", list(range(index, 30 + 9 * index))))
        drained = drain(engine)
        answers.append([token_ids(drained[f"r{index}"]) for index in range(3)])
    assert answers[0] == answers[1]
    assert len({tuple(answer) for answer in answers[0]}) == 3


def test_kv_bytes_as_the_documents_compute_them() -> None:
    llama3_8b = KVShape(num_layers=32, num_kv_heads=8, head_dim=128, block_size=16, dtype=torch.bfloat16)
    assert llama3_8b.bytes_per_token == 128 * 1024
    assert llama3_8b.bytes_per_block == 2 * 2**20


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_packed_bfloat16_stays_near_float32() -> None:
    checkpoint = TinyCheckpoint()
    token_ids = list(range(40, 60))
    exact = our_logits(build_model(checkpoint, torch.float32, CPU), token_ids, [])
    spec = build_model(checkpoint, torch.bfloat16, CPU)
    attention = TorchAttention(KVShape(2, 2, 8, 4, torch.bfloat16), 8, CPU)
    with torch.inference_mode():
        rough = spec.forward(
            torch.tensor(token_ids),
            torch.arange(20),
            torch.arange(20),
            attention=attention,
            plan=attention.plan([Span(0, 20, range(8))]),
        )
    assert torch.nn.functional.cosine_similarity(rough, exact).min() > 0.999
