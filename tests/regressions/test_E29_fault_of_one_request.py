"""E29: a fault inside the step for one request fails that request; the others go on undisturbed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from baton_engine.assembly import LoadedEngine
from baton_engine.request import Request
from baton_engine.sampling_params import SamplingParams
from tests.support.engine_driver import add, ask, drain, edit_logits, token_ids
from tests.support.tiny_model import ByteChunk, ByteDecoder, tiny_engine


class BreakingDecoder(ByteDecoder):
    """Fails for prompts that begin with 66: at once, after three tokens, or when flushed."""

    def __init__(self, prompt_token_ids: Sequence[int], sampling: SamplingParams) -> None:
        super().__init__(prompt_token_ids, sampling)
        self.when = prompt_token_ids[1] if prompt_token_ids[0] == 66 else None
        self.pushes = 0
        if self.when == 0:
            raise ValueError("decoder broke")

    def push(self, token_ids: Sequence[int]) -> ByteChunk:
        self.pushes += 1
        if self.when == 1 and self.pushes == 3:
            raise ValueError("decoder broke")
        return super().push(token_ids)

    def finish(self) -> ByteChunk:
        if self.when == 2:
            raise ValueError("decoder broke")
        return super().finish()


def expected() -> list[int]:
    engine = tiny_engine()
    add(engine, ask("good", [1, 2, 3]))
    return token_ids(drain(engine)["good"])


def check_only_bad_failed(engine: LoadedEngine, code: str) -> None:
    answers = drain(engine)
    assert token_ids(answers["good"]) == expected()
    assert answers["good"][-1].finish_reason == "length"
    bad = answers["bad"][-1]
    assert bad.finish_reason == "error"
    assert bad.error is not None
    assert bad.error.code == code
    assert engine.core.stats().kv_blocks_held == 0
    assert engine.core.waiting_room.num_requests == 0


@pytest.mark.parametrize("when", [0, 1, 2], ids=["at its birth", "in a step", "at its end"])
def test_a_detokenizer_fault(when: int) -> None:
    engine = tiny_engine()
    engine.core._new_decoder = BreakingDecoder
    add(engine, ask("bad", [66, when]))
    add(engine, ask("good", [1, 2, 3]))
    check_only_bad_failed(engine, "detokenizer_error")


def test_logits_that_are_no_numbers() -> None:
    engine = tiny_engine()

    def poison(requests: Sequence[Request], logits: torch.Tensor) -> None:
        for row, request in enumerate(requests):
            if request.request_id == "bad" and request.num_answer_tokens == 4:
                logits[row] = torch.nan

    edit_logits(engine, poison)
    add(engine, ask("bad", [9]))
    add(engine, ask("good", [1, 2, 3]))
    check_only_bad_failed(engine, "invalid_logits")
