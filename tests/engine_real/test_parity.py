"""Real weights: 20 prompts × 64 greedy tokens equal those of transformers in float32, alone and batched.

The model folder is BATON_TEST_MODEL, or smollm2-135m under BATON_HOME (default ~/.baton).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from baton_engine import LLM, SamplingParams

NUM_TOKENS = 64
GREEDY = SamplingParams(max_tokens=NUM_TOKENS, temperature=0, ignore_eos=True)
PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a village by the sea,",
    "1, 1, 2, 3, 5, 8,",
    "Why is my API returning a 503? Because",
    "Water boils at 100 degrees Celsius, that is",
    "import numpy as np\n\nx = np.",
    "Dear Sir or Madam,\n\nI am writing to",
    "The three laws of thermodynamics are:\n1.",
    "Q: What is the tallest mountain on Earth?\nA:",
    "Über den Wolken muss die Freiheit",
    "La capitale de l'Italie est",
    "数学は",
    "🙂🙃 Emoji are",
    "SELECT name, age FROM users WHERE",
    "In 1969, the Apollo 11 mission",
    "The quick brown fox jumps over the lazy dog. " * 8,
    "A list of fruits: apple, banana, cherry,",
    "To be, or not to be, that is the question: " + "whether 'tis nobler in the mind " * 5,
    "x",
]

pytestmark = [pytest.mark.real_weights, pytest.mark.timeout(900)]


def model_folder() -> Path:
    named = os.environ.get("BATON_TEST_MODEL")
    home = Path(os.environ.get("BATON_HOME", "~/.baton")).expanduser()
    return Path(named) if named else home / "models" / "smollm2-135m"


@pytest.fixture(scope="module")
def llm() -> LLM:
    folder = model_folder()
    if not (folder / "config.json").is_file():
        pytest.skip(f"no model at {folder}: run `baton models pull smollm2-135m` or set BATON_TEST_MODEL")
    return LLM(folder, dtype="float32", device="cpu", kv_memory_bytes=256 * 2**20)


@pytest.fixture(scope="module")
def prompts(llm: LLM) -> list[list[int]]:
    assert len(PROMPTS) == 20
    return [llm.tokenizer.encode(prompt) for prompt in PROMPTS]


@pytest.fixture(scope="module")
def batched(llm: LLM, prompts: list[list[int]]) -> list[list[int]]:
    return [list(output.token_ids) for output in llm.generate(prompts, GREEDY)]


def test_batched(prompts: list[list[int]], batched: list[list[int]]) -> None:
    """Each token is the top one of the reference after all before it: by induction the answers are equal.

    One forward pass a prompt: generating 64 tokens with transformers would take minutes here.
    """
    model = AutoModelForCausalLM.from_pretrained(model_folder(), dtype=torch.float32)
    for prompt, answer in zip(prompts, batched, strict=True):
        with torch.inference_mode():
            logits = model(torch.tensor([prompt + answer])).logits[0]
        expected = logits[len(prompt) - 1 : -1].argmax(-1).tolist()
        assert len(answer) == NUM_TOKENS
        assert answer == expected


def test_alone(llm: LLM, prompts: list[list[int]], batched: list[list[int]]) -> None:
    for prompt, expected in zip(prompts, batched, strict=True):
        assert list(llm.generate(prompt, GREEDY)[0].token_ids) == expected


def test_bfloat16_mostly_agrees(prompts: list[list[int]], batched: list[list[int]]) -> None:
    """Rounding may change a close call, after which answers part; the first tokens are rarely close calls."""
    rough = LLM(model_folder(), dtype="bfloat16", device="cpu", kv_memory_bytes=256 * 2**20)
    outputs = rough.generate(prompts, replace(GREEDY, max_tokens=1))
    agreeing = sum(output.token_ids[0] == answer[0] for output, answer in zip(outputs, batched, strict=True))
    assert agreeing >= 17
