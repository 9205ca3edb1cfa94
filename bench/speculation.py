"""What speculative decoding brings: tokens/s without it, with n-grams, with a draft model.

    python -m bench.speculation --model qwen2.5-coder-0.5b --modes off ngram --concurrency 1 4

Two tasks: `rewrite` (give this file back with one name changed: most of the answer stands in the prompt) and
`free` (open questions). The engine alone, greedy, in this process; the prompt's time is left out. All modes
must give the same tokens.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import baton_engine
from baton_engine import (
    LLM,
    DraftSpeculation,
    EngineRequest,
    NgramSpeculation,
    SamplingParams,
    SpeculationStats,
)
from baton_engine.config import EngineConfig

MODELS = Path.home() / ".baton" / "models"
FILE_CHARACTERS = 1_500
FILES = (
    "errors.py",
    "request.py",
    "config.py",
    "kv_cache.py",
    "scheduler.py",
    "output.py",
    "backend.py",
    "memory.py",
)
QUESTIONS = (
    "Why is the sky blue?",
    "Tell a story about a ship that finds an island.",
    "What should a beginner know about growing tomatoes?",
    "Explain how a bicycle stays upright.",
    "Describe a market on a rainy morning.",
    "How do tides come about?",
    "Write a letter to a friend who has moved away.",
    "What makes bread rise?",
)


@dataclass(frozen=True)
class Row:
    """accepted: of the guessed tokens, the share that held. tokens_per_step: of one request."""

    model: str
    task: str
    mode: str
    concurrency: int
    tokens_per_second: float
    tokens_per_step: float
    drafted: int
    accepted: float
    milliseconds_drafting: float
    same_tokens: bool


def conversation(task: str, index: int) -> list[dict[str, str]]:
    if task == "free":
        content = QUESTIONS[index % len(QUESTIONS)]
    else:
        file = Path(baton_engine.__file__).parent / FILES[index % len(FILES)]
        content = (
            "Give this file back exactly as it is, but with `Request` spelled `Asked`. Only the file.\n\n"
            f"```python\n{file.read_text()[:FILE_CHARACTERS]}\n```"
        )
    return [{"role": "user", "content": content}]


@dataclass(frozen=True)
class Measured:
    """From the first step in which all decode to the end."""

    tokens: list[tuple[int, ...]]
    seconds: float
    num_tokens: int
    speculation: tuple[int, int]
    draft_seconds: float


def measure(llm: LLM, task: str, concurrency: int, num_tokens: int) -> Measured:
    core = llm._engine.core  # steps are what is timed here
    sampling = SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)
    answers: dict[str, list[int]] = {}
    for index in range(concurrency):
        prompt = llm.tokenizer.apply_chat_template(conversation(task, index))
        llm._add(EngineRequest(f"{task}-{index}", prompt_token_ids=prompt, sampling=sampling))
        answers[f"{task}-{index}"] = []
    started_at, num_before, before = 0.0, 0, core.stats()
    while core.has_work:
        if not started_at and all(answers.values()):
            num_before, before = sum(map(len, answers.values())), core.stats()
            started_at = time.perf_counter()
        for delta in core.step():
            answers[delta.request_id] += delta.token_ids
    seconds = time.perf_counter() - started_at
    after = core.stats()
    return Measured(
        [tuple(ids) for ids in answers.values()],
        seconds,
        sum(map(len, answers.values())) - num_before,
        counts(before.speculation, after.speculation),
        after.step_profile.since(before.step_profile).draft_seconds,
    )


def speculation_for(mode: str, args: argparse.Namespace) -> NgramSpeculation | DraftSpeculation | None:
    if mode == "off":
        return None
    names = ("num_tokens", "max_step_tokens", "max_running")
    asked = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if mode == "ngram":
        return replace(NgramSpeculation(), **asked)
    return replace(DraftSpeculation(MODELS / (args.draft or args.model)), **asked)


def rows_of(
    mode: str, args: argparse.Namespace, expected: dict[tuple[str, int], list[tuple[int, ...]]]
) -> list[Row]:
    settings = EngineConfig(
        MODELS / args.model,
        quantization=args.quantization,
        speculation=speculation_for(mode, args),
        max_model_len=4096,
    ).__dict__
    llm = LLM(**settings)
    rows: list[Row] = []
    for task in args.tasks:
        for concurrency in args.concurrency:
            found = measure(llm, task, concurrency, args.tokens)
            drafted, accepted = found.speculation
            rows.append(
                Row(
                    args.model,
                    task,
                    mode,
                    concurrency,
                    round(found.num_tokens / found.seconds, 1),
                    round(found.num_tokens / (found.num_tokens - accepted), 2),
                    drafted,
                    round(accepted / drafted, 2) if drafted else 0.0,
                    round(1e3 * found.draft_seconds, 1),
                    expected.setdefault((task, concurrency), found.tokens) == found.tokens,
                )
            )
            print(json.dumps(asdict(rows[-1])), flush=True)
    return rows


def counts(before: SpeculationStats, after: SpeculationStats) -> tuple[int, int]:
    drafted = after.num_draft_tokens - before.num_draft_tokens
    return drafted, after.num_accepted_tokens - before.num_accepted_tokens


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--draft", help="model of the mode draft; by default the model itself")
    parser.add_argument(
        "--modes", nargs="+", default=["off", "ngram", "draft"], choices=["off", "ngram", "draft"]
    )
    parser.add_argument("--tasks", nargs="+", default=["rewrite", "free"], choices=["rewrite", "free"])
    parser.add_argument("--concurrency", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--num-tokens", type=int, help="guesses in a step, at most")
    parser.add_argument("--max-step-tokens", type=int)
    parser.add_argument("--max-running", type=int)
    parser.add_argument("--quantization", default=None)
    args = parser.parse_args(argv)
    expected: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    for mode in args.modes:
        rows_of(mode, args, expected)


if __name__ == "__main__":
    main()
