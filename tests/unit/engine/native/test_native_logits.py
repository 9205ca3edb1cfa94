"""The native kernels against float32 torch: all shapes, all families, both instruction sets.

Tolerances: cosine of the rows' logits at least 0.9998 in the mean and 0.998 in the worst of some hundred
rows (torch's own bfloat16 is worse in both, see `test_nearer_to_float32_than_torch_in_bfloat16`); the argmax
equal wherever float32's best leads by more than 3 % of the row's spread.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from tests.support.native_model import (
    Sequences,
    float32_forward,
    isa_parameters,
    logits,
    native_checkpoint,
    native_forward,
    torch_forward,
)

CASES: dict[str, dict[str, Any]] = {
    "groups of 3, heads of 64": {},
    "no groups": {"num_attention_heads": 2, "num_key_value_heads": 2},
    "groups of 7, biases": {"model_type": "qwen2", "num_attention_heads": 14, "num_key_value_heads": 2},
    "heads of 128": {"head_dim": 128, "num_attention_heads": 4, "num_key_value_heads": 2},
    "heads of 128, one to one": {"head_dim": 128, "num_attention_heads": 2, "num_key_value_heads": 2},
    "heads of 32, groups of 16": {"head_dim": 32, "num_attention_heads": 16, "num_key_value_heads": 1},
    "all biases, tied": {"attention_bias": True, "tie_word_embeddings": True},
    "odd sizes": {"hidden_size": 70, "intermediate_size": 50, "vocab_size": 277},
    "qwen2 tied": {"model_type": "qwen2", "tie_word_embeddings": True, "rope_theta": 1e6},
    "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "normed heads": {"model_type": "qwen3", "num_attention_heads": 4, "num_key_value_heads": 2},
    "a window inside a partition": {"model_type": "mistral", "sliding_window": 9},
    "a window over partitions": {"model_type": "mistral", "sliding_window": 270},
    "a window in every layer but the first": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 33,
        "max_window_layers": 1,
    },
}
# 1 token; a page and its neighbours; a partition of 256 and its neighbours; three partitions.
LENGTHS = [1, 15, 16, 17, 255, 257, 530]


def assert_near(rough: torch.Tensor, exact: torch.Tensor) -> None:
    assert rough.shape == exact.shape
    near = torch.nn.functional.cosine_similarity(rough, exact)
    assert near.mean() >= 0.9998
    assert near.min() >= 0.998
    best = exact.topk(2).values
    clear = best[:, 0] - best[:, 1] > 0.03 * (exact.amax(-1) - exact.amin(-1))
    assert torch.equal(rough.argmax(-1)[clear], exact.argmax(-1)[clear])


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("case", CASES)
def test_prompts_of_all_lengths_then_a_mixed_step(case: str, isa: str) -> None:
    checkpoint = native_checkpoint(**CASES[case])
    native, exact = native_forward(checkpoint, isa), float32_forward(checkpoint)
    sequences = Sequences(LENGTHS)
    heads = [(one, 0, length - length // 3) for one, length in enumerate(LENGTHS)]
    tails = [(one, length - length // 3, length) for one, length in enumerate(LENGTHS) if length // 3]
    mixed = [(1, 10, 11), *tails[1:4], (3, 5, 6), *tails[4:]]
    for parts in (heads, tails[:1], mixed):
        batch = sequences.batch(parts)
        assert_near(logits(native, batch), logits(exact, batch))


YARN = {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
"""Its factor on attention makes this random model's scores so large that both sides lose more in bfloat16."""


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize("changes", [{}, YARN], ids=["plain", "yarn"])
def test_nearer_to_float32_than_torch_in_bfloat16(isa: str, changes: dict[str, Any]) -> None:
    checkpoint, sequences = native_checkpoint(**changes), Sequences([300])
    exact = logits(float32_forward(checkpoint), sequences.whole())
    ours, theirs = (
        1 - torch.nn.functional.cosine_similarity(logits(forward, sequences.whole()), exact)
        for forward in (native_forward(checkpoint, isa), torch_forward(checkpoint, torch.bfloat16))
    )
    assert ours.mean() < theirs.mean()
    assert ours.max() < theirs.max()


@pytest.mark.parametrize("isa", isa_parameters())
def test_decodes_over_one_two_and_three_partitions(isa: str) -> None:
    checkpoint = native_checkpoint()
    native, exact = native_forward(checkpoint, isa), float32_forward(checkpoint)
    sequences = Sequences([257, 256, 530, 40])
    for forward in (native, exact):
        logits(forward, sequences.batch([(0, 0, 254), (1, 0, 250), (2, 0, 528), (3, 0, 30)]))
    for step in range(2):
        batch = sequences.batch(
            [
                (0, 254 + step, 255 + step),
                (1, 250 + step, 251 + step),
                (2, 528 + step, 529 + step),
                (3, 30 + step, 31 + step),
            ]
        )
        assert_near(logits(native, batch), logits(exact, batch))


@pytest.mark.parametrize("isa", isa_parameters())
@pytest.mark.parametrize(
    ("quantization", "family"),
    [
        (None, {}),
        ("int8", {}),
        ("int4", {}),
        (None, {"model_type": "qwen3"}),
        (None, {"model_type": "mistral", "sliding_window": 45}),
    ],
)
def test_a_row_is_the_same_whatever_is_computed_beside_it(
    isa: str, quantization: str | None, family: dict[str, Any]
) -> None:
    """Bit for bit: whole prompts together, one alone, in chunks, token by token, other threads."""
    checkpoint = native_checkpoint(num_attention_heads=6, num_key_value_heads=2, **family)
    lengths = [40, 300, 17, 130]
    sequences = Sequences(lengths)
    together = logits(native_forward(checkpoint, isa, quantization=quantization), sequences.whole())
    wanted = together[40:340]
    alone = native_forward(checkpoint, isa, num_threads=1, quantization=quantization)
    assert torch.equal(logits(alone, sequences.batch([(1, 0, 300)])), wanted)
    chunked = native_forward(checkpoint, isa, num_threads=3, quantization=quantization)
    cuts = [0, 7, 64, 65, 250, 251, 252, 270, 300]
    rows = []
    for start, end in itertools.pairwise(cuts):
        rows.append(
            logits(chunked, sequences.batch([(0, 0, 40), (1, start, end), (2, 0, 1)]))[40 : 40 + end - start]
        )
    assert torch.equal(torch.cat(rows), wanted)
    decoded = [logits(chunked, sequences.batch([(1, at, at + 1)])) for at in range(248, 300)]
    assert torch.equal(torch.cat(decoded), wanted[248:])


def test_both_instruction_sets_agree() -> None:
    isas = [parameter.values[0] for parameter in isa_parameters() if not parameter.marks[0].args[0]]
    if len(isas) < 2:
        pytest.skip("this CPU has one of them only")
    checkpoint, sequences = native_checkpoint(), Sequences([100, 280])
    first, second = (logits(native_forward(checkpoint, isa), sequences.whole()) for isa in isas)
    assert torch.nn.functional.cosine_similarity(first, second).min() > 0.99999


@pytest.mark.parametrize("isa", isa_parameters())
def test_what_an_earlier_owner_left_in_a_block_is_not_seen(isa: str) -> None:
    """Token 5 has a NaN for an embedding: its keys and values are NaN, and stay in the block it used."""
    checkpoint = native_checkpoint()
    clean = native_forward(checkpoint, isa)
    poisoned = native_forward(PoisonedCheckpoint(checkpoint.config), isa)
    sequences = Sequences([20, 20])
    bad = [5] * 20
    sequences.blocks[1] = sequences.blocks[0]
    sequences.token_ids[1], sequences.token_ids[0] = (
        bad,
        [token if token != 5 else 6 for token in sequences.token_ids[0]],
    )
    assert logits(poisoned, sequences.batch([(1, 0, 20)])).isnan().all()
    parts = [(0, 0, 18)]
    expected = logits(clean, sequences.batch(parts))
    assert torch.equal(logits(poisoned, sequences.batch(parts)), expected)
    assert torch.equal(
        logits(poisoned, sequences.batch([(0, 18, 19)])), logits(clean, sequences.batch([(0, 18, 19)]))
    )


class PoisonedCheckpoint(type(native_checkpoint())):
    def tensors(self):  # type: ignore[no-untyped-def]
        for name, tensor in super().tensors():
            if name == "model.embed_tokens.weight":
                tensor[5] = torch.nan
            yield name, tensor


@pytest.mark.parametrize("isa", isa_parameters())
def test_int8_stays_near(isa: str) -> None:
    """Weights and activations are off by at most 1/254 of their block's largest, logits by little more."""
    checkpoint = native_checkpoint()
    sequences = Sequences([64])
    exact = logits(float32_forward(checkpoint), sequences.whole())
    rough = logits(native_forward(checkpoint, isa, quantization="int8"), sequences.whole())
    near = torch.nn.functional.cosine_similarity(rough, exact)
    assert near.mean() > 0.998
    assert near.min() > 0.99
    assert not torch.equal(rough, logits(native_forward(checkpoint, isa), sequences.whole()))


@pytest.mark.parametrize("isa", isa_parameters())
def test_only_the_wanted_rows_come_back(isa: str) -> None:
    native, sequences = native_forward(native_checkpoint(), isa), Sequences([50])
    every = logits(native, sequences.whole())
    batch = sequences.whole()
    some = type(batch)(batch.token_ids, batch.spans, [3, 49])
    assert torch.equal(logits(native, some), every[[3, 49]])
    none = type(batch)(batch.token_ids, batch.spans, [])
    assert logits(native, none).shape == (0, 264)
