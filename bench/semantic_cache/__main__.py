"""`python -m bench.semantic_cache`: precision and recall of hits over pairs.tsv, by threshold.

Pairs of the kind `same` may share an answer, all others may not; each is as near as its kind allows.
Vectors are those of the embedder that ships. Prints the table; writes bench/results/semantic_cache.json.
"""

from __future__ import annotations

import csv
import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from baton_embedder.encoder import MeanPoolEncoder, packaged_minilm
from baton_llm_gateway.likeness import similarity
from baton_llm_gateway.question_guard import wording

PAIRS = Path(__file__).parent / "pairs.tsv"
RESULTS = Path(__file__).parents[1] / "results" / "semantic_cache.json"
THRESHOLDS = (0.7, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98)
SAME = "same"
MAX_TOKENS = 256


@dataclass(frozen=True)
class Pair:
    kind: str
    first: str
    second: str
    similarity: float
    may_share: bool
    """By the guard alone."""


def main() -> None:
    pairs = rated(read_pairs())
    kinds = Counter(pair.kind for pair in pairs)
    rows = [row(pairs, threshold, guarded) for guarded in (False, True) for threshold in THRESHOLDS]
    print(f"{len(pairs)} pairs: {dict(kinds)}; the guard takes {guard_microseconds(pairs):.1f} µs a question")
    for each in rows:
        print(*(f"{name} {value}" for name, value in each.items() if name != "wrong_kinds"), sep="  ")
    result = {"command": "python -m bench.semantic_cache", "pairs": dict(kinds), "rows": rows}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")


def read_pairs() -> list[tuple[str, str, str]]:
    with PAIRS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [(kind, first, second) for kind, first, second in rows[1:]]


def rated(pairs: list[tuple[str, str, str]]) -> list[Pair]:
    encoder = MeanPoolEncoder.load(packaged_minilm(), MAX_TOKENS)
    texts = sorted({text for _, *both in pairs for text in both})
    vectors = {text: encoder.encode(encoder.tokenize([text]))[0] for text in texts}
    found: list[Pair] = []
    for kind, first, second in pairs:
        words = wording(first)
        may_share = words is not None and words == wording(second)
        found.append(Pair(kind, first, second, similarity(vectors[first], vectors[second]), may_share))
    return found


def row(pairs: list[Pair], threshold: float, guarded: bool) -> dict[str, object]:
    hits = [pair for pair in pairs if pair.similarity >= threshold and (pair.may_share or not guarded)]
    right = sum(pair.kind == SAME for pair in hits)
    wrong = Counter(pair.kind for pair in hits if pair.kind != SAME)
    return {
        "guard": guarded,
        "threshold": threshold,
        "precision": round(right / len(hits), 3) if hits else None,
        "recall": round(right / sum(pair.kind == SAME for pair in pairs), 3),
        "wrong": sum(wrong.values()),
        "wrong_kinds": dict(wrong),
    }


def guard_microseconds(pairs: list[Pair]) -> float:
    questions = [pair.first for pair in pairs] * 20
    started = time.perf_counter()
    for question in questions:
        wording(question)
    return (time.perf_counter() - started) / len(questions) * 1e6


if __name__ == "__main__":
    main()
