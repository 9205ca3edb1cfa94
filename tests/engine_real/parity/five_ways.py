"""Five ways to compute the same greedy answers: alone, batched, chunked, preempted, behind a prefix hit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from baton_engine import LLM, RequestOutput, SamplingParams

Prompt = Sequence[int]
ROOMY = 3 * 2**29  # bytes of KV: no preemption, and what is cached stays cached


class Answer(NamedTuple):
    """logprobs are the model's own, of the chosen tokens: equal ones mean equal logits."""

    token_ids: list[int]
    logprobs: list[float]


def alone(folder: Path, prompts: Sequence[Prompt], num_tokens: int, **config: Any) -> list[Answer]:
    llm = _engine(folder, enable_prefix_caching=False, **config)
    return [_answers(llm, [prompt], num_tokens)[0] for prompt in prompts]


def batched(folder: Path, prompts: Sequence[Prompt], num_tokens: int, **config: Any) -> list[Answer]:
    return _answers(_engine(folder, enable_prefix_caching=False, **config), prompts, num_tokens)


def chunked(folder: Path, prompts: Sequence[Prompt], num_tokens: int, **config: Any) -> list[Answer]:
    """Steps of at most 24 tokens, so prompts come in parts of 1 to 24 beside decodes."""
    small = {"max_num_seqs": 8, "max_num_batched_tokens": 24}
    return _answers(_engine(folder, enable_prefix_caching=False, **small, **config), prompts, num_tokens)


def preempted(folder: Path, prompts: Sequence[Prompt], num_tokens: int, **config: Any) -> list[Answer]:
    """A pool for a third of them, and for the longest."""
    blocks = [-(-(len(prompt) + num_tokens) // 16) for prompt in prompts]
    num_blocks = max(sum(blocks) // 3, *blocks)
    llm = _engine(folder, enable_prefix_caching=False, num_blocks=num_blocks, **config)
    answers = _answers(llm, prompts, num_tokens)
    assert llm.stats().preemptions_total > 0, "the pool was large enough for all"
    return answers


def prefix_hit(folder: Path, prompts: Sequence[Prompt], num_tokens: int, **config: Any) -> list[Answer]:
    """Prompt and the first half of the answer are asked again, when their blocks are in the cache."""
    llm = _engine(folder, **config)
    cold = _answers(llm, prompts, num_tokens)
    half = num_tokens // 2
    longer = [[*prompt, *answer.token_ids[:half]] for prompt, answer in zip(prompts, cold, strict=True)]
    warm = _answers(llm, longer, num_tokens - half)
    full_blocks = sum((len(prompt) - 1) // 16 for prompt in longer)
    assert llm.stats().prefix_hit_tokens_total >= 16 * full_blocks, "not all was cached"
    return [
        Answer(first.token_ids[:half] + second.token_ids, first.logprobs[:half] + second.logprobs)
        for first, second in zip(cold, warm, strict=True)
    ]


def answers_of(folder: Path, **config: Any) -> Callable[[Sequence[Prompt], int], list[Answer]]:
    """An engine of this configuration, to be asked several times."""
    return partial(_answers, _engine(folder, **config))


Way = Callable[..., list[Answer]]
WAYS: dict[str, Way] = {
    "alone": alone,
    "batched": batched,
    "chunked": chunked,
    "preempted": preempted,
    "prefix hit": prefix_hit,
}


def _engine(folder: Path, **config: Any) -> LLM:
    roomy: dict[str, Any] = {} if "num_blocks" in config else {"kv_memory_bytes": ROOMY}
    return LLM(folder, **{"device": "cpu"} | roomy | config)


def _answers(llm: LLM, prompts: Sequence[Prompt], num_tokens: int) -> list[Answer]:
    greedy = SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True, logprobs=0)
    return [_answer(output) for output in llm.generate(list(prompts), greedy)]


def _answer(output: RequestOutput) -> Answer:
    return Answer(list(output.token_ids), [entry.logprob for entry in output.logprobs])
