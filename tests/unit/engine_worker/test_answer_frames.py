from __future__ import annotations

import math
from typing import Any

from baton_contracts.frames import Data, ToolCallPiece, Usage
from baton_contracts.prompt import Sampling
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


def test_an_answer_that_ends_before_the_others_says_so_in_its_last_frame() -> None:
    answers = frames()
    early = answers.data(last(1, "length", tokens=8, num_left=1))
    assert early is not None
    assert (early.index, early.text, early.finish_reason) == (1, "", "length")
    final = answers.data(last(0, "stop", tokens=2, text="x"))
    assert final is not None
    assert final.finish_reason is None  # the End says it
    for reason in ("cancelled", "error"):
        assert frames().data(last(0, reason, tokens=2, num_left=1)) is None


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


class ManyLetters(Letters):
    def token_bytes(self, token_id: int) -> bytes:
        return f"<{token_id}>".encode()


def told(sampling: Sampling, prompt: list[int], delta: RequestDelta, *, resumed: bool = False) -> list[Data]:
    answers = AnswerFrames(RID, "engine_worker-1", ManyLetters())
    answers.tell_tokens(prompt, sampling, resumed=resumed)
    return [*answers.frames(delta), *answers.frames(RequestDelta("r", "b", (4,)))]


def test_without_being_asked_nothing_is_told_of_tokens() -> None:
    for frame in told(Sampling(), [5, 6], RequestDelta("r", "a", (3,))):
        assert (frame.tokens, frame.prompt) == (None, None)


def test_the_prompt_is_told_once_before_the_first_token_in_pieces() -> None:
    sampling = Sampling(return_token_ids=True, prompt_logprobs=1)
    prompt = list(range(1, 131))
    scores = (None, *(TokenLogprobs(token_id, -1.5, ((7, -0.5),)) for token_id in prompt[1:]))
    frames = told(sampling, prompt, RequestDelta("r", "a", (3,), prompt_logprobs=scores))
    pieces = [frame.prompt for frame in frames if frame.prompt]
    assert [(piece.start, len(piece.tokens)) for piece in pieces] == [(0, 128), (128, 2)]
    assert [token.token_id for piece in pieces for token in piece.tokens] == prompt
    rated = [entry for piece in pieces for entry in piece.logprobs or ()]
    assert rated[0] is None
    assert [entry.token_id for entry in rated[1:] if entry] == prompt[1:]
    assert rated[1] is not None
    assert [(top.token_id, top.text, top.logprob) for top in rated[1].top] == [(7, "<7>", -0.5)]
    answer = [frame for frame in frames if frame.prompt is None]
    assert [frame.text for frame in answer] == ["a", "b"]
    assert [token.token_id for frame in answer for token in frame.tokens or ()] == [3, 4]
    assert bytes((answer[0].tokens or ())[0].token_bytes) == b"<3>"


def test_scores_of_the_prompt_alone_bring_no_ids_of_the_answer() -> None:
    scores = (None, TokenLogprobs(6, -1.5))
    frames = told(Sampling(prompt_logprobs=0), [5, 6], RequestDelta("r", "a", (3,), prompt_logprobs=scores))
    assert [bool(frame.prompt) for frame in frames] == [True, False, False]
    assert all(frame.tokens is None for frame in frames)


def test_an_answer_that_goes_on_has_told_its_prompt_already() -> None:
    frames = told(Sampling(return_token_ids=True), [5], RequestDelta("r", "a", (3,)), resumed=True)
    assert [frame.prompt for frame in frames] == [None, None]
    assert frames[0].tokens is not None
