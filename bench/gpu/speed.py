"""How fast: random prompts, all at once, straight at the engine in this process."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from baton_engine import LLM, RequestOutput, SamplingParams

LEVELS = (1, 8, 32, 64)
KINDS: dict[str, dict[str, Any]] = {
    "graphs": {"cuda_graphs": True},
    "no graphs": {"cuda_graphs": False},
    "deterministic": {"deterministic": True},
}


class Row(NamedTuple):
    kind: str
    clients: int
    ttft_ms: float
    tpot_ms: float
    tokens_per_s: float

    @staticmethod
    def header() -> str:
        return f"{'':14}{'clients':>8}{'TTFT p50, ms':>14}{'TPOT p50, ms':>14}{'tokens/s':>10}"

    def __str__(self) -> str:
        return (
            f"{self.kind:14}{self.clients:8}{self.ttft_ms:14.1f}{self.tpot_ms:14.2f}{self.tokens_per_s:10.0f}"
        )


def measure(
    folder: Path, device: str, dtype: str, kind: str, levels: Sequence[int], tokens: Sequence[int]
) -> Iterator[Row]:
    num_in, num_out = tokens
    llm = LLM(
        folder,
        device=device,
        dtype=dtype,
        backend="torch",
        enable_prefix_caching=False,
        max_model_len=num_in + num_out,
        max_num_seqs=max(levels),
        **({"max_num_batched_tokens": 2_048} if device == "cuda" else {}),
        **KINDS[kind],
    )
    dice = random.Random(0)  # noqa: S311  (prompts, not secrets)
    for clients in levels:
        prompts = [[dice.randrange(1_000, 20_000) for _ in range(num_in)] for _ in range(clients)]
        llm.generate(prompts[:1], _greedy(2))
        started_at = time.perf_counter()
        outputs = llm.generate(prompts, _greedy(num_out))
        seconds = time.perf_counter() - started_at
        yield Row(
            kind,
            clients,
            round(statistics.median(map(_ttft, outputs)) * 1e3, 1),
            round(statistics.median(map(_tpot, outputs)) * 1e3, 2),
            round(clients * num_out / seconds, 1),
        )


def _greedy(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)


def _ttft(output: RequestOutput) -> float:
    assert output.timings.first_token_at is not None
    return output.timings.first_token_at - output.timings.queued_at


def _tpot(output: RequestOutput) -> float:
    assert output.timings.first_token_at is not None
    return (output.timings.finished_at - output.timings.first_token_at) / (len(output.token_ids) - 1)
