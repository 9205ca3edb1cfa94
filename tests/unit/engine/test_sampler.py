from __future__ import annotations

from collections import Counter

import pytest
import torch

from baton_engine import choosing
from baton_engine.choosing import NUM_CANDIDATES
from baton_engine.request import Request
from baton_engine.sampler import Sampler, uniform
from baton_engine.sampling_params import SamplingParams


def request(
    seed: int = 0, position: int = 1, ends: frozenset[int] = frozenset(), **sampling: object
) -> Request:
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    one = Request("r", (0,), params, max_tokens=10_000, seed=seed, end_token_ids=ends)
    one.token_ids += [0] * (position - 1)
    return one


def sample(rows: list[list[float]] | torch.Tensor, requests: list[Request]) -> list[int | None]:
    logits = torch.as_tensor(rows, dtype=torch.float32).clone()
    return [token.token_id for token in Sampler().sample(logits, requests)]


def seen(logits: list[float], draws: int = 400, **sampling: object) -> Counter[int | None]:
    """Which tokens are drawn over many positions of one request."""
    requests = [request(position=position, seed=5, **sampling) for position in range(1, draws + 1)]
    return Counter(sample([logits] * draws, requests))


def test_the_counter_gives_known_numbers() -> None:
    """Fixed values: an answer begun on one release goes on the same on the next."""
    assert uniform(0, 0) == 0.5049172747145874
    assert uniform(-1, 4096) == 0.30612045623715956
    assert uniform(1, 0) != uniform(0, 1)


def test_the_counter_is_uniform() -> None:
    numbers = torch.tensor([uniform(7, position) for position in range(20_000)], dtype=torch.float64)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    shares = torch.histc(numbers, bins=10, min=0, max=1) / 20_000
    assert (shares - 0.1).abs().max() < 0.01


def test_temperature_0_takes_the_top_token_and_the_lowest_id_of_equals() -> None:
    rows = [[0.0, 3.0, 3.0, 1.0], [5.0, 0.0, 0.0, 5.0]]
    assert sample(rows, [request(temperature=0), request(temperature=0, top_p=0.1, min_p=1.0)]) == [1, 0]


def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log().tolist()
    counts = seen(logits, draws=5_000)
    assert [round(counts[token] / 5_000, 2) for token in range(3)] == pytest.approx([0.5, 0.3, 0.2], abs=0.02)


def test_temperature_sharpens_and_flattens() -> None:
    logits = torch.tensor([0.6, 0.4]).log().tolist()
    hot, cold = seen(logits, 2_000, temperature=4.0), seen(logits, 2_000, temperature=0.25)
    # p ∝ p ** (1 / temperature)
    assert hot[0] / 2_000 == pytest.approx(0.6**0.25 / (0.6**0.25 + 0.4**0.25), abs=0.03)
    assert cold[0] / 2_000 == pytest.approx(0.6**4 / (0.6**4 + 0.4**4), abs=0.03)


@pytest.mark.parametrize("temperature", [1e-30, 1e-60, 5e-324])
def test_a_tiny_temperature_is_greedy_and_no_overflow(temperature: float) -> None:
    """Also where it is 0 in float32."""
    assert set(seen([1.0, 90.0, 89.0], temperature=temperature)) == {1}


LADDER = torch.tensor([0.4, 0.3, 0.2, 0.1]).log().tolist()


@pytest.mark.parametrize(
    ("sampling", "allowed"),
    [
        ({"top_k": 2}, {0, 1}),
        ({"top_k": 1}, {0}),
        ({"top_k": 0}, {0, 1, 2, 3}),
        ({"top_k": -1}, {0, 1, 2, 3}),
        ({"top_k": 4}, {0, 1, 2, 3}),
        ({"top_k": 10_000}, {0, 1, 2, 3}),
        ({"top_p": 0.0}, {0}),
        ({"top_p": 0.39}, {0}),
        ({"top_p": 0.5}, {0, 1}),
        ({"top_p": 0.75}, {0, 1, 2}),
        ({"top_p": 1.0}, {0, 1, 2, 3}),
        ({"min_p": 0.6}, {0, 1}),
        ({"min_p": 1.0}, {0}),
        # top-p is a share of what top-k left: 0.4 / 0.7 is over 0.5, so one token is enough
        ({"top_k": 2, "top_p": 0.5}, {0}),
        ({"top_k": 3, "top_p": 0.5}, {0, 1}),
        # min-p looks at the distribution after temperature: 0.3² / 0.4² is under 0.6
        ({"min_p": 0.6, "temperature": 0.5}, {0}),
    ],
)
def test_what_each_cut_leaves(sampling: dict[str, float], allowed: set[int]) -> None:
    assert set(seen(LADDER, **sampling)) == allowed


def test_of_equal_tokens_top_k_keeps_the_lowest_ids() -> None:
    assert set(seen([1.0] * 2_000, top_k=3)) == {0, 1, 2}


def test_cuts_wider_than_the_candidates_are_exact_too() -> None:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(NUM_CANDIDATES * 4, generator=generator) * 0.1
    order = logits.argsort(descending=True, stable=True)
    for top_k in (NUM_CANDIDATES - 1, NUM_CANDIDATES, NUM_CANDIDATES + 1, NUM_CANDIDATES * 2):
        drawn = seen(logits.tolist(), draws=300, top_k=top_k)
        assert set(drawn) <= set(order[:top_k].tolist())
        assert max(order.tolist().index(token) for token in drawn) > top_k * 0.9
    probabilities = logits.softmax(0)[order].double().cumsum(0)
    needed = int((probabilities < 0.8).sum()) + 1
    drawn = seen(logits.tolist(), draws=300, top_p=0.8)
    assert needed > NUM_CANDIDATES
    assert set(drawn) <= set(order[:needed].tolist())


def test_one_row_that_needs_a_wide_cut_widens_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    look = choosing._sorted_candidates

    def noting(scaled: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        sizes.append((scaled.shape[0], width))
        return look(scaled, width)

    monkeypatch.setattr(choosing, "_sorted_candidates", noting)
    flat = torch.zeros(32_768)
    flat[5] = 1.0
    peaked = torch.zeros(32_768)
    peaked[7] = 20.0
    requests = [request(top_p=0.9) for _ in range(3)]
    drawn = sample(torch.stack((peaked, flat, peaked)), requests)
    assert (drawn[0], drawn[2]) == (7, 7)
    assert sizes == [(3, 512), (1, 4_096), (1, 32_768)]


def test_rows_of_all_kinds_do_not_touch_each_other() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 3_000, generator=generator) * 3
    kinds: list[dict[str, object]] = [
        {"temperature": 0},
        {"temperature": 0.7, "top_k": 40},
        {"temperature": 1.3, "top_p": 0.9},
        {"temperature": 1.0, "min_p": 0.05},
        {"temperature": 1.0},
        {"temperature": 1.0, "top_k": 2_000, "top_p": 0.99},
    ]
    requests = [request(seed=index, position=50 + index, **kind) for index, kind in enumerate(kinds)]
    alone = [sample(logits[index : index + 1], [one])[0] for index, one in enumerate(requests)]
    assert sample(logits, requests) == alone
    backwards = sample(logits.flip(0), list(reversed(requests)))
    assert list(reversed(backwards)) == alone


def test_end_ids_are_impossible_before_min_tokens() -> None:
    row = [0.0, 9.0, 1.0]
    ends = frozenset({1})
    early = request(ends=ends, temperature=0, min_tokens=2, position=2)
    on_time = request(ends=ends, temperature=0, min_tokens=2, position=3)
    assert (early.num_answer_tokens, on_time.num_answer_tokens) == (1, 2)
    assert sample([row, row], [early, on_time]) == [2, 1]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0, 1])
def test_a_row_without_usable_numbers_fails_alone(bad: float, temperature: float) -> None:
    rows = [[0.0, bad, 1.0], [0.0, 9.0, 1.0]]
    requests = [request(temperature=temperature), request(temperature=0)]
    assert sample(rows, requests) == [None, 1]


def test_a_token_of_probability_0_is_never_drawn() -> None:
    ninf = float("-inf")
    assert set(seen([ninf, 0.0, ninf, ninf], draws=200)) == {1}


def test_nothing_to_sample() -> None:
    assert Sampler().sample(torch.empty(0, 10), []) == []
