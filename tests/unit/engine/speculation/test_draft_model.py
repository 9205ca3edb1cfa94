"""A draft model beside the model: the same tokens, whatever it guesses, and a KV of its own that follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from baton_engine import ConfigError, DraftSpeculation, ModelLoadError, SamplingParams
from baton_engine.assembly import LoadedEngine, load_engine
from baton_engine.request import Request
from baton_engine.speculation.draft_model import DraftModel
from baton_engine.speculation.drafting import Wanted
from tests.support.drafters import PROMPTS, SEEDED, answers_of, greedy_and_seeded, however_computed
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.tiny_model import (
    TINY_CONFIG,
    ByteTokenizer,
    TinyCheckpoint,
    tiny_config,
    tiny_engine,
    tiny_parts,
)

FOUR = DraftSpeculation("draft", num_tokens=4, max_running=8)


@dataclass
class NoisyCheckpoint(TinyCheckpoint):
    """The model's weights with some noise: a draft that is often right."""

    noise: float = 0.1

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        generator = torch.Generator().manual_seed(99)
        for name, tensor in super().tensors():
            yield name, tensor + self.noise * tensor.std() * torch.randn(tensor.shape, generator=generator)


DRAFTS = {"itself": TinyCheckpoint(), "a noisy copy": NoisyCheckpoint(), "another": TinyCheckpoint(seed=1)}


def drafting_engine(draft: TinyCheckpoint, **changes: Any) -> LoadedEngine:
    return tiny_engine(draft=draft, speculation=FOUR, **changes)


def draft_model(engine: LoadedEngine) -> DraftModel:
    drafter = engine.core.speculation.drafter
    assert isinstance(drafter, DraftModel)
    return drafter


@greedy_and_seeded
@pytest.mark.parametrize("draft", DRAFTS)
@however_computed
def test_the_same_tokens_however_they_are_computed(
    changes: dict[str, Any], draft: str, sampling: SamplingParams
) -> None:
    engine = drafting_engine(DRAFTS[draft], **changes)
    assert answers_of(engine, sampling) == answers_of(tiny_engine(), sampling)
    assert engine.core.stats().speculation.num_drafts > 0
    if "num_blocks" in changes:
        assert engine.core.stats().preemptions_total > 0
    assert draft_model(engine).kv_cache.pool.counts().held == 0


@greedy_and_seeded
def test_the_same_weights_guess_right_and_the_same_numbers_draw_the_same(sampling: SamplingParams) -> None:
    engine = drafting_engine(DRAFTS["itself"])
    add(engine, ask("a", [1, 2, 3], replace(sampling, max_tokens=41)))
    drain(engine)
    stats = engine.core.stats()
    assert stats.speculation.acceptance_rate == 1
    assert stats.steps_total == 1 + 40 / (4 + 1)
    assert stats.speculation.num_accepted_tokens_per_pos == (8, 8, 8, 8)


def test_a_noisy_copy_is_right_more_often_than_another_model() -> None:
    rates: list[float] = []
    for draft in DRAFTS.values():
        engine = drafting_engine(draft)
        answers_of(engine, SEEDED)
        rates.append(engine.core.stats().speculation.acceptance_rate)
    assert rates[0] > rates[1] > rates[2]


@pytest.mark.parametrize("changes", [{}, {"block_size": 4, "num_blocks": 24}, {"max_num_batched_tokens": 8}])
def test_each_guess_is_what_the_draft_model_alone_would_say(changes: dict[str, Any]) -> None:
    """Whatever was accepted, refused and preempted before: its KV holds the real tokens and nothing else."""
    engine = drafting_engine(DRAFTS["a noisy copy"], **changes)
    seen: list[tuple[list[int], list[int]]] = []
    draft = draft_model(engine).draft

    def recorded(wanted: Sequence[Wanted], most: int, running: Sequence[Request]) -> list[list[int]]:
        drafts = draft(wanted, most, running)
        seen.extend(
            ([*one.request.token_ids], guess) for one, guess in zip(wanted, drafts, strict=True) if guess
        )
        return drafts

    draft_model(engine).draft = recorded  # type: ignore[method-assign]
    answers_of(engine, replace(GREEDY, max_tokens=30))
    stats = engine.core.stats().speculation
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens
    assert len(seen) > 30
    for before, guess in seen[::4]:
        alone = tiny_engine(DRAFTS["a noisy copy"])
        add(alone, ask("a", before, replace(GREEDY, max_tokens=len(guess))))
        assert token_ids(drain(alone)["a"]) == guess


def test_the_drafts_prompt_is_computed_beside_the_models() -> None:
    """When the first token is there, the draft is ready; shared prompts are computed once there too."""
    engine = drafting_engine(DRAFTS["itself"], max_num_batched_tokens=16)
    request = add(engine, ask("a", list(range(60)), GREEDY))
    while request.num_answer_tokens < 2:
        engine.core.step()
    assert request.num_answer_tokens == 1 + 5
    drain(engine)
    computed: list[int] = []
    run = draft_model(engine).runner.run

    def counted(plan: Any) -> Tensor:
        computed.append(plan.num_tokens)
        return run(plan)

    draft_model(engine).runner.run = counted  # type: ignore[method-assign]
    add(engine, ask("b", list(range(60)), GREEDY))
    drain(engine)
    assert computed[0] == 61 - 48


def test_a_full_draft_pool_means_no_guesses_and_nothing_else() -> None:
    engine = drafting_engine(DRAFTS["itself"])
    drafts = draft_model(engine).kv_cache
    taken = drafts.pool.take(drafts.pool.num_available)
    assert taken is not None
    add(engine, ask("a", [1, 2, 3], replace(GREEDY, max_tokens=6)))
    for _ in range(3):
        engine.core.step()
    assert engine.core.stats().speculation.num_drafts == 0
    drafts.pool.release(taken)
    drain(engine)
    assert engine.core.stats().speculation.num_drafts == 1


def test_guesses_are_shared_out_before_they_are_computed() -> None:
    """Three requests, so nine of twelve tokens for guesses: three each, where they would take four."""
    engine = tiny_engine(draft=DRAFTS["itself"], speculation=replace(FOUR, max_step_tokens=12))
    for name in "abc":
        add(engine, ask(name, PROMPTS[0], GREEDY))
    engine.core.step()
    assert [len(delta.token_ids) for delta in engine.core.step()] == [4, 4, 4]
    assert engine.core.stats().speculation.num_draft_tokens == 9
    drain(engine)


def test_cancel_gives_the_drafts_blocks_back() -> None:
    engine = drafting_engine(DRAFTS["a noisy copy"])
    add(engine, ask("a", list(range(40)), GREEDY))
    for _ in range(3):
        engine.core.step()
    assert draft_model(engine).kv_cache.pool.counts().held > 0
    engine.core.cancel("a")
    engine.core.check_idle()


def test_several_answers_and_the_rules_of_a_request() -> None:
    for sampling in (
        replace(SEEDED, n=3),
        replace(GREEDY, repetition_penalty=1.3, presence_penalty=1.0, min_tokens=10),
        replace(SEEDED, allowed_token_ids=tuple(range(60, 90)), logit_bias={70: 5.0}, min_p=0.05),
        replace(GREEDY, logprobs=2, prompt_logprobs=1),
    ):
        answers: list[list[tuple[int, tuple[int, ...]]]] = []
        for engine in (tiny_engine(), drafting_engine(DRAFTS["a noisy copy"])):
            add(engine, ask("a", PROMPTS[2], sampling))
            deltas = drain(engine)["a"]
            answers.append(
                [(i, tuple(token_ids([d for d in deltas if d.index == i]))) for i in range(sampling.n)]
            )
        assert answers[0] == answers[1]


def test_a_draft_model_with_a_shorter_context_ends_guessing_there() -> None:
    short = TinyCheckpoint(config=TINY_CONFIG | {"max_position_embeddings": 32})
    engine = drafting_engine(short)
    request = add(engine, ask("a", list(range(20)), replace(GREEDY, max_tokens=60)))
    drafted_at: list[int] = []
    while engine.core.has_work:
        before = engine.core.stats().speculation.num_drafts
        num_tokens = request.num_tokens
        engine.core.step()
        if engine.core.stats().speculation.num_drafts > before:
            drafted_at.append(num_tokens)
    assert request.num_answer_tokens == 60
    assert drafted_at
    assert max(drafted_at) <= 32


@pytest.mark.parametrize("vocab_size", [258, 300])
def test_logits_of_another_width(vocab_size: int) -> None:
    """Wider: a guess outside the model's vocabulary ends the draft. Narrower: none behind unknown ids."""
    other = TinyCheckpoint(config=TINY_CONFIG | {"vocab_size": vocab_size}, seed=3)
    for prompt in ([1, 2, 3], [1, 263, 3]):
        engine = drafting_engine(other)
        add(engine, ask("a", prompt, replace(SEEDED, logit_bias={262: 1.0})))
        plain = tiny_engine()
        add(plain, ask("a", prompt, replace(SEEDED, logit_bias={262: 1.0})))
        assert token_ids(drain(engine)["a"]) == token_ids(drain(plain)["a"])
        drafted = engine.core.stats().speculation.num_drafts
        assert (drafted == 0) == (vocab_size == 258 and 263 in prompt)


class OtherTokenizer(ByteTokenizer):
    def encode(self, text: str) -> list[int]:
        return [255 - one for one in text.encode()]


def test_another_vocabulary_is_refused_with_an_example() -> None:
    parts = replace(tiny_parts(), tokenizer=OtherTokenizer())
    with pytest.raises(
        ConfigError, match=r"draft model draft has another vocabulary.*'The quick.*\[171, 151"
    ):
        load_engine(tiny_config(speculation=FOUR), tiny_parts(), draft_parts=parts)


def test_a_draft_model_that_is_not_there() -> None:
    with pytest.raises(ModelLoadError):
        load_engine(tiny_config(speculation=DraftSpeculation("/nowhere")), tiny_parts())


def test_memory_is_shared_between_both_pools() -> None:
    """2 layers × 2 KV heads × 8 × 2 × 4 bytes × 16 tokens = 4,096 a block; the draft's half as much."""
    one_layer = TinyCheckpoint(config=TINY_CONFIG | {"num_hidden_layers": 1})
    config = {"num_blocks": None, "kv_memory_bytes": 60 * 1024}
    engine = tiny_engine(**config)
    assert engine.core.stats().kv_blocks_total == 15
    both = tiny_engine(draft=one_layer, speculation=FOUR, **config)
    assert both.core.stats().kv_blocks_total == 10
    assert draft_model(both).kv_cache.pool.num_blocks == 10
    with pytest.raises(ConfigError, match="6144 bytes"):
        tiny_engine(draft=one_layer, speculation=FOUR, num_blocks=None, kv_memory_bytes=6_000)


def test_the_bill_names_the_draft_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_engine.assembly.available_bytes", lambda: 1_000_000)
    with pytest.raises(ModelLoadError, match=r"draft model 0 MiB, KV"):
        tiny_engine(draft=TinyCheckpoint(), speculation=FOUR)
