from __future__ import annotations

import math
from typing import Any

from baton_contracts.frames import ToolCallPiece, Usage
from baton_engine import RequestDelta, RequestFailure, Timings, TokenLogprobs, ToolCallDelta
from baton_engine import Usage as EngineUsage
from baton_engine_worker.answer_frames import AnswerFrames

RID = "0af7651916cd43dd8448eb211c80319c"
END = 9


class Letters:
    """Id 1 is a, 2 is half of é, 9 ends the answer."""

    eos_token_ids = frozenset({END})

    def token_bytes(self, token_id: int) -> bytes:
        return {1: b"a", 2: b"\xc3", END: b"<end>"}[token_id]


def frames() -> AnswerFrames:
    return AnswerFrames(RID, "engine_worker-1", Letters())


def last(
    index: int, reason: Any, *, tokens: int, num_left: int = 0, at: float = 1.0, **more: Any
) -> RequestDelta:
    return RequestDelta(
        "r",
        index=index,
        finish_reason=reason,
        usage=EngineUsage(10, 4, tokens, tokens // 2),
        blocks_freed=2,
        timings=Timings(0, 0, 0, at),
        num_left=num_left,
        **more,
    )


def test_a_delta_is_a_frame_with_all_its_parts() -> None:
    call = ToolCallDelta(0, "call_1", "add", "{")
    frame = frames().data(RequestDelta("r", "text", (1,), 3, reasoning="hm", tool_calls=(call,)))
    assert frame is not None
    assert (frame.index, frame.text, frame.token_ids, frame.reasoning) == (3, "text", (1,), "hm")
    assert frame.tool_calls == (ToolCallPiece(index=0, call_id="call_1", name="add", arguments="{"),)
    assert frame.logprobs is None


def test_a_delta_that_adds_nothing_is_none() -> None:
    assert frames().data(last(0, "stop", tokens=0)) is None


def test_logprobs_say_what_the_tokens_are() -> None:
    rated = TokenLogprobs(2, -math.inf, ((1, -0.5),))
    frame = frames().data(RequestDelta("r", "", (2,), logprobs=(rated,)))
    assert frame is not None
    assert frame.logprobs is not None
    [token] = frame.logprobs
    assert (token.text, token.token_bytes, token.logprob) == ("\ufffd", (0xC3,), -9999.0)
    assert [(one.text, one.logprob) for one in token.top] == [("a", -0.5)]


def test_the_token_that_ends_the_answer_is_not_rated() -> None:
    rated = (TokenLogprobs(1, -1), TokenLogprobs(END, -2))
    frame = frames().data(last(0, "stop", tokens=2, token_ids=(1, END), logprobs=rated))
    assert frame is not None
    assert frame.logprobs is not None
    assert [token.text for token in frame.logprobs] == ["a"]
    cut = frames().data(last(0, "length", tokens=2, token_ids=(1, END), logprobs=rated))
    assert cut is not None
    assert cut.logprobs is not None
    assert [token.text for token in cut.logprobs] == ["a", "<end>"]


def test_the_end_of_one_answer() -> None:
    answers = frames()
    answers.data(last(0, "tool_calls", tokens=6))
    end = answers.end()
    assert (end.finish_reason, end.finish_reasons, end.reasons) == ("tool_calls", (), ("tool_calls",))
    assert end.usage == Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=6, reasoning_tokens=3)
    assert end.blocks_freed == 2


def test_the_end_of_several_counts_the_prompt_once_and_all_their_tokens() -> None:
    answers = frames()
    answers.data(last(1, "length", tokens=8, num_left=1, at=5.0))
    answers.data(last(0, "stop", tokens=2, at=7.0))
    end = answers.end()
    assert end.reasons == ("stop", "length")
    assert end.usage == Usage(prompt_tokens=10, cached_tokens=4, completion_tokens=10, reasoning_tokens=5)
    assert end.blocks_freed == 4
    assert end.timings is not None
    assert end.timings.finished_at == 7.0


def test_a_request_that_was_cancelled_half_way_is_cancelled() -> None:
    answers = frames()
    answers.data(last(0, "stop", tokens=2, num_left=1))
    answers.data(last(1, "cancelled", tokens=1))
    assert answers.end().reasons == ("cancelled",)
    assert answers.usage().completion_tokens == 3


def test_one_failed_answer_fails_the_request() -> None:
    answers = frames()
    failure = RequestFailure("invalid_logits", "no number")
    answers.data(last(1, "error", tokens=1, num_left=1, error=failure))
    assert answers.has_failed
    answers.data(last(0, "cancelled", tokens=4))
    assert answers.failure == failure
    assert answers.usage().completion_tokens == 5
