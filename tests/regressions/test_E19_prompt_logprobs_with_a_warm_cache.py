"""E19: prompt_logprobs are complete rows, however warm the cache, however the prompt is cut or preempted."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from baton_engine import RequestDelta
from baton_engine.assembly import LoadedEngine
from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_torch import TorchAttention
from baton_engine.models import build_model
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import TinyCheckpoint, tiny_engine

CPU = torch.device("cpu")
PROMPT = [(7 * index) % 250 for index in range(50)]
SCORED = replace(GREEDY, max_tokens=3, prompt_logprobs=2)


def expected() -> torch.Tensor:
    """Log-softmax after each prompt token, straight from the model in one pass."""
    model = build_model(TinyCheckpoint(), torch.float32, CPU)
    attention = TorchAttention(KVShape(2, 2, 8, 16, torch.float32), 4, CPU)
    with torch.inference_mode():
        logits = model.forward(
            torch.tensor(PROMPT),
            torch.arange(50),
            torch.arange(50),
            attention=attention,
            plan=attention.plan([Span(0, 50, range(4))]),
        )
    return logits.log_softmax(-1)


def check(deltas: list[RequestDelta]) -> None:
    reference = expected()
    assert [delta.prompt_logprobs is None for delta in deltas] == [False, True, True]
    rows = deltas[0].prompt_logprobs
    assert rows is not None
    assert rows[0] is None
    assert len(rows) == 50
    for at, entry in enumerate(rows[1:], start=1):
        assert entry is not None
        assert entry.token_id == PROMPT[at]
        assert entry.logprob == pytest.approx(float(reference[at - 1, PROMPT[at]]), abs=1e-4)
        assert [value for _, value in entry.top] == pytest.approx(
            reference[at - 1].topk(2).values.tolist(), abs=1e-4
        )


def ask_scored(engine: LoadedEngine) -> list[RequestDelta]:
    add(engine, ask("scored", PROMPT, SCORED))
    return drain(engine)["scored"]


def test_cold_and_in_chunks() -> None:
    check(ask_scored(tiny_engine(max_num_batched_tokens=256)))
    check(ask_scored(tiny_engine(max_num_batched_tokens=8)))


def test_with_a_warm_cache_which_is_not_read() -> None:
    engine = tiny_engine()
    add(engine, ask("warm", PROMPT, GREEDY))
    warm = drain(engine)["warm"]
    deltas = ask_scored(engine)
    check(deltas)
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.cached_tokens == 0
    assert token_ids(deltas) == token_ids(warm)[:3]


def test_after_preemption_in_the_middle_of_the_prompt() -> None:
    engine = tiny_engine(num_blocks=16, block_size=4, max_num_batched_tokens=9)
    add(engine, ask("other", [9] * 5, GREEDY))
    request = add(engine, ask("scored", PROMPT, replace(SCORED, max_tokens=3)))
    while request.num_preemptions == 0 and engine.core.has_work:
        if 20 < request.num_computed_tokens < 45:
            engine.core.scheduler._preempt(request, engine.core.scheduler.schedule())
        else:
            engine.core.step()
    assert 20 < len(request.prompt_logprobs) < 50
    check(drain(engine)["scored"])


def test_a_prompt_of_one_token_has_one_row_of_nothing() -> None:
    engine = tiny_engine()
    add(engine, ask("a", [1], SCORED))
    assert drain(engine)["a"][0].prompt_logprobs == (None,)


def test_after_it_others_read_what_it_computed() -> None:
    engine = tiny_engine()
    ask_scored(engine)
    add(engine, ask("next", PROMPT, GREEDY))
    last = drain(engine)["next"][-1]
    assert last.usage is not None
    assert last.usage.cached_tokens == 48
