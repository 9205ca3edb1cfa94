"""`python -m bench.auto_route`: trains the classifier behind `auto` and says how often it is right.

Each kind of question (greetings, logic puzzles, …) is judged by weights that never saw its kind. Prints and
writes bench/results/auto_route.json; `--write` also puts the weights, trained on all, into the gateway.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from baton_common.catalog import load_catalog
from baton_contracts.prompt import Message, Part, Prompt
from baton_llm_gateway import difficulty
from baton_llm_gateway.difficulty import Difficulty, features
from baton_llm_gateway.model_choice import ModelChooser
from bench.auto_route.training import fit

QUESTIONS = Path(__file__).parent / "questions.tsv"
RESULTS = Path(__file__).parents[1] / "results" / "auto_route.json"
WEIGHTS = Path(difficulty.__file__).parent / "difficulty.json"
RIDGE = 3.0
LONG_QUESTION = 600


@dataclass(frozen=True)
class Question:
    is_hard: bool
    kind: str
    text: str


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.auto_route", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the weights into the gateway")
    options = parser.parse_args()
    questions = read_questions()
    judged = [(question, verdict) for question, verdict in judge_by_kind(questions)]
    final = trained(questions)
    result = {
        "command": "python -m bench.auto_route",
        "questions": len(questions),
        "kinds": len({question.kind for question in questions}),
        "classifier": confusion([(question, hard) for question, (hard, _) in judged]),
        "rules_alone": confusion([(question, bool(rule)) for question, (_, rule) in judged]),
        "auto": confusion([(question, hard or bool(rule)) for question, (hard, rule) in judged]),
        "wrong_by_kind": wrong_by_kind(judged),
        "microseconds": round(microseconds(final, questions), 1),
    }
    print(json.dumps(result, indent=1))
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    if options.write:
        weights = {name: round(value, 4) for name, value in final.weights.items()}
        data = {"made_by": "python -m bench.auto_route --write", "bias": round(final.bias, 4)}
        WEIGHTS.write_text(json.dumps(data | {"weights": weights}, indent=1) + "\n")


def read_questions() -> list[Question]:
    with QUESTIONS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [Question(label == "hard", kind, text) for label, kind, text in rows[1:]]


def trained(questions: list[Question]) -> Difficulty:
    found = [features(question.text) or {} for question in questions]
    names = list(found[0])
    rows = np.array([[each[name] for name in names] for each in found])
    labels = np.array([float(question.is_hard) for question in questions])
    *weights, bias = (float(value) for value in fit(rows, labels, RIDGE))
    return Difficulty(bias, dict(zip(names, weights, strict=True)))


def judge_by_kind(questions: list[Question]) -> list[tuple[Question, tuple[bool, str]]]:
    """Whether a classifier that never saw its kind finds it hard; and the rule that does, if any."""
    rules = ModelChooser(load_catalog(), lambda _: True, lambda _: True, LONG_QUESTION, difficulty=None)
    judged: list[tuple[Question, tuple[bool, str]]] = []
    for kind in dict.fromkeys(question.kind for question in questions):
        model = trained([question for question in questions if question.kind != kind])
        for question in questions:
            if question.kind == kind:
                rating = model.rate(question.text)
                message = Message(role="user", parts=(Part(text=question.text),))
                rule = rules.choose("auto", Prompt(messages=(message,))).rule
                judged.append((question, (bool(rating and rating.is_hard), "" if rule == "easy" else rule)))
    return judged


def confusion(judged: list[tuple[Question, bool]]) -> dict[str, object]:
    right = sum(question.is_hard == hard for question, hard in judged)
    return {
        "accuracy": round(right / len(judged), 3),
        "easy_as_easy": sum(not question.is_hard and not hard for question, hard in judged),
        "easy_as_hard": sum(not question.is_hard and hard for question, hard in judged),
        "hard_as_easy": sum(question.is_hard and not hard for question, hard in judged),
        "hard_as_hard": sum(question.is_hard and hard for question, hard in judged),
    }


def wrong_by_kind(judged: list[tuple[Question, tuple[bool, str]]]) -> dict[str, str]:
    """Of the classifier alone: wrong of all."""
    found: dict[str, list[bool]] = {}
    for question, (hard, _) in judged:
        found.setdefault(question.kind, []).append(question.is_hard != hard)
    return {kind: f"{sum(wrong)} of {len(wrong)}" for kind, wrong in found.items()}


def microseconds(model: Difficulty, questions: list[Question]) -> float:
    started = time.perf_counter()
    for question in questions * 5:
        model.rate(question.text)
    return (time.perf_counter() - started) / len(questions) / 5 * 1e6


if __name__ == "__main__":
    main()
