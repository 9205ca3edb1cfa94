"""Writes reference.json: what transformers in float32 answers to prompts.json, greedily, 128 tokens each.

    python -m tests.engine_real.parity.make_reference [MODEL_FOLDER]

Every token is the argmax of a forward pass of transformers over all tokens before it. So that this takes
minutes and not an hour, our engine drafts an answer; transformers checks it whole, and from the first token
that is not its own the engine drafts again behind transformers' token. The draft has no say in what is
written.

A close call is a token whose logit leads by less than CLOSE_CALL: [place in the answer, the second token, the
lead].
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from baton_engine import LLM, SamplingParams  # before torch: see baton_engine.openmp

import torch  # isort: skip
from transformers import AutoModelForCausalLM  # isort: skip

from tests.engine_real.model_folder import model_folder

NUM_TOKENS = 128
CLOSE_CALL = 1e-3
FOLDER = Path(__file__).parent


@dataclass
class Answer:
    prompt: list[int]
    token_ids: list[int] = field(default_factory=list)
    close_calls: list[tuple[int, int, float]] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return NUM_TOKENS - len(self.token_ids)


def main(folder: Path) -> None:
    llm = LLM(folder, dtype="float32", device="cpu", kv_memory_bytes=2**29)
    texts: list[str] = json.loads((FOLDER / "prompts.json").read_text(encoding="utf-8"))
    answers = [Answer(list(llm.tokenizer.encode(text))) for text in texts]
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    while open_answers := [answer for answer in answers if answer.missing]:
        drafts = llm.generate(
            [answer.prompt + answer.token_ids for answer in open_answers],
            [greedy(answer.missing) for answer in open_answers],
        )
        for answer, draft in zip(open_answers, drafts, strict=True):
            extend(reference, answer, list(draft.token_ids))
        print(f"{sum(not answer.missing for answer in answers)} of {len(answers)} answers", flush=True)
    write(answers)


def greedy(num_tokens: int) -> SamplingParams:
    return SamplingParams(max_tokens=num_tokens, temperature=0, ignore_eos=True)


def extend(reference: torch.nn.Module, answer: Answer, draft: list[int]) -> None:
    """Takes over what transformers says at each place, up to the first where the draft is another."""
    tokens = answer.prompt + answer.token_ids + draft
    with torch.inference_mode():
        logits = reference(torch.tensor([tokens])).logits[0, -len(draft) - 1 : -1]
    values, ids = logits.topk(2)
    for (first, second), (token_id, runner_up), drafted in zip(
        values.tolist(), ids.tolist(), draft, strict=True
    ):
        if first - second < CLOSE_CALL:
            answer.close_calls.append((len(answer.token_ids), runner_up, first - second))
        answer.token_ids.append(token_id)
        if token_id != drafted:
            return


def write(answers: list[Answer]) -> None:
    lines = [
        json.dumps({"prompt": answer.prompt, "answer": answer.token_ids, "close_calls": answer.close_calls})
        for answer in answers
    ]
    (FOLDER / "reference.json").write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else model_folder())
