"""The kernel that chooses tokens, beside the same rules in torch: the same token for the same point."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import torch

from baton_engine.choosing import GREEDY, Draw, choose
from baton_engine.native.forward import NativeForward
from tests.support.native_model import isa_parameters, native_checkpoint, native_forward

pytestmark = pytest.mark.parametrize("isa", isa_parameters())
VOCABULARY = 2_000


@pytest.fixture
def kernel(isa: str) -> NativeForward:
    return native_forward(native_checkpoint(vocab_size=VOCABULARY), isa)


def some_draws(count: int, seed: int) -> list[Draw]:
    rng = random.Random(seed)  # noqa: S311 - test data

    def one() -> Draw:
        return Draw(
            temperature=rng.choice([0.0, 1e-60, 0.3, 0.8, 1.0, 2.0, 50.0]),
            top_p=rng.choice([1.0, 1.0, 0.0, 0.1, 0.5, 0.9, 0.999]),
            top_k=rng.choice([0, 0, 1, 2, 40, 700, VOCABULARY, VOCABULARY * 2]),
            min_p=rng.choice([0.0, 0.0, 0.05, 0.5, 1.0]),
            point=rng.random(),
        )

    return [one() for _ in range(count)]


def some_logits(count: int, seed: int, size: int = VOCABULARY) -> torch.Tensor:
    """Peaked rows and flat ones, rows of few values (many equals), rows with forbidden tokens."""
    generator = torch.Generator().manual_seed(seed)
    spread = torch.tensor([0.01, 1.0, 3.0, 10.0]).repeat(count)[:count, None]
    logits = torch.randn(count, size, generator=generator) * spread
    logits[1::3] = logits[1::3].round()
    logits[2::5] = torch.where(torch.rand(size, generator=generator) < 0.5, -torch.inf, logits[2::5])
    return logits


@pytest.mark.parametrize("seed", range(4))
def test_the_same_tokens_as_in_torch(kernel: NativeForward, seed: int) -> None:
    logits, draws = some_logits(300, seed), some_draws(300, seed)
    assert kernel.choose(logits, draws) == choose(logits, draws)


@pytest.mark.parametrize("size", [1, 5, 16, 63, 64, 65, 1_999])
def test_any_width_and_rows_with_something_behind_them(kernel: NativeForward, size: int) -> None:
    logits, draws = torch.full((40, size + 9), 1e9), some_draws(40, size)
    logits[:, :size] = some_logits(40, size, size).clamp(min=-1e30)
    assert kernel.choose(logits[:, :size], draws) == choose(logits[:, :size], draws)


def test_one_row_and_many_give_the_same(kernel: NativeForward) -> None:
    logits, draws = some_logits(30, 9), some_draws(30, 9)
    alone = [kernel.choose(logits[row : row + 1], draws[row : row + 1])[0] for row in range(30)]
    assert kernel.choose(logits, draws) == alone


def test_the_lowest_id_of_equals(kernel: NativeForward) -> None:
    logits = torch.zeros(2, VOCABULARY)
    logits[0, [700, 1_500]] = 4.0
    logits[1, [3, 1_999]] = 0.5
    assert kernel.choose(logits, [GREEDY, GREEDY]) == [700, 3]
    assert kernel.choose(logits, [Draw(1.0, top_k=1, point=0.99)] * 2) == [700, 3]


def test_half_of_four_equal_tokens_is_two(kernel: NativeForward) -> None:
    logits = torch.full((100, VOCABULARY), -50.0)
    logits[:, [10, 20, 30, 40]] = 2.0
    draws = [Draw(1.0, top_p=0.5, point=row / 100) for row in range(100)]
    assert Counter(kernel.choose(logits, draws)) == {10: 50, 20: 50}
    assert Counter(choose(logits, draws)) == {10: 50, 20: 50}


@pytest.mark.parametrize("draw", [GREEDY, Draw(1.0, point=0.5), Draw(0.7, top_p=0.9, top_k=5, point=0.5)])
def test_a_row_without_a_finite_maximum_is_refused_alone(kernel: NativeForward, draw: Draw) -> None:
    logits = torch.zeros(5, VOCABULARY)
    logits[:, 4] = 30.0
    logits[1, 1_999] = torch.nan
    logits[2] = -torch.inf
    logits[3, 17] = torch.inf
    assert kernel.choose(logits, [draw] * 5) == [4, None, None, None, 4]


def test_a_forbidden_token_is_never_drawn_even_at_the_ends(kernel: NativeForward) -> None:
    logits = torch.full((3, VOCABULARY), -torch.inf)
    logits[:, 1_000] = -3.0
    for draw in (Draw(1.0, point=0.0), Draw(1e6, top_p=0.99, point=0.0), Draw(1.0, point=1 - 2**-53)):
        assert kernel.choose(logits, [draw] * 3) == [1_000] * 3
