"""How many of a small model's answers to a sample of JSON schemas are valid.

    python -m bench.structured [--model smollm2-135m] [--max-tokens 256] [--seeds 1] [--temperature 1]

Ends with an error if under 99 % of the answers that came to an end are valid.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import baton_engine
from baton_engine import SamplingParams
from bench.structured.sample import Finding, ask_all, schemas

GOAL = 0.99
MODELS = Path.home() / ".baton" / "models"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=1, help="answers to each schema")
    parser.add_argument("--temperature", type=float, default=1.0)
    args = parser.parse_args()
    llm = baton_engine.LLM(MODELS / args.model)
    findings: list[Finding] = []
    began_at = time.perf_counter()
    for seed in range(args.seeds):
        sampling = SamplingParams(max_tokens=args.max_tokens, temperature=args.temperature, seed=seed)
        findings += ask_all(llm, schemas(), sampling)
    print_report(findings, time.perf_counter() - began_at)
    sys.exit(0 if share_of_valid(findings) >= GOAL else 1)


def share_of_valid(findings: Sequence[Finding]) -> float:
    """Of the answers that came to an end."""
    finished = [one for one in findings if one.finished]
    return sum(not one.invalid for one in finished) / len(finished) if finished else 0.0


def print_report(findings: Sequence[Finding], seconds: float) -> None:
    for one in findings:
        if one.refused or one.invalid or not one.finished:
            why = one.refused or one.invalid or "ran into max_tokens"
            print(f"{one.name}: {why}\n    {one.text[:160]}")
    finished = [one for one in findings if one.finished]
    print(
        f"{len(findings)} answers in {seconds:.0f} s: {sum(bool(one.refused) for one in findings)} refused, "
        f"{len(finished)} came to an end, {share_of_valid(findings):.1%} of these are valid"
    )


if __name__ == "__main__":
    main()
