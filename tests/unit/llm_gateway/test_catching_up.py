"""A long answer told late: in few frames, with all that its steps said."""

from __future__ import annotations

from typing import Any

from baton_contracts.frames import Data, PromptPiece, SpelledToken, TokenLogprob, ToolCallPiece
from baton_llm_gateway.catching_up import MOST_FRAMES, in_few, piece_size

RID = "c" * 32


def data(**said: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=7, **said)


def token(number: int) -> dict[str, Any]:
    spelled = SpelledToken(token_id=number, token_bytes=(65,))
    rated = TokenLogprob(text="A", token_bytes=(65,), logprob=-number)
    return {"token_ids": (number,), "logprobs": (rated,), "tokens": (spelled,)}


def test_few_frames_go_as_they_came() -> None:
    frames = [data(text=str(number)) for number in range(MOST_FRAMES)]
    assert in_few(frames) is frames


def test_of_two_answers_each_keeps_its_tokens_in_order() -> None:
    count = 4 * MOST_FRAMES
    frames = [data(index=number % 2, text=f"{number} ", **token(number)) for number in range(count)]
    frames[-2] = frames[-2].model_copy(update={"finish_reason": "length"})
    few = in_few(frames)
    assert len(few) <= MOST_FRAMES + 2
    for index in range(2):
        own, numbers = [frame for frame in few if frame.index == index], range(index, count, 2)
        assert "".join(frame.text for frame in own) == "".join(f"{number} " for number in numbers)
        assert [each for frame in own for each in frame.token_ids] == list(numbers)
        assert [-each.logprob for frame in own for each in frame.logprobs or ()] == list(numbers)
        assert [each.token_id for frame in own for each in frame.tokens or ()] == list(numbers)
    assert [frame.finish_reason for frame in few if frame.finish_reason] == ["length"]


def test_thinking_calls_and_the_prompt_are_told_whole() -> None:
    prompt = data(prompt=PromptPiece(start=0, tokens=(SpelledToken(token_id=1, token_bytes=(66,)),)))
    thoughts = [data(reasoning="hm ") for _ in range(2 * MOST_FRAMES)]
    began = data(tool_calls=(ToolCallPiece(index=0, call_id="c1", name="look"),))
    arguments = [data(tool_calls=(ToolCallPiece(index=0, arguments="1"),)) for _ in range(2 * MOST_FRAMES)]
    ended = data(tool_calls=(ToolCallPiece(index=0, is_whole=True),))
    few = in_few([prompt, *thoughts, began, *arguments, ended])
    assert few[0] is prompt
    assert len(few) <= MOST_FRAMES + 2
    assert "".join(frame.reasoning or "" for frame in few) == "hm " * (2 * MOST_FRAMES)
    pieces = [piece for frame in few for piece in frame.tool_calls or ()]
    whole = pieces[0]
    for piece in pieces[1:]:
        whole = whole.then(piece)
    expected = ToolCallPiece(
        index=0, call_id="c1", name="look", arguments="1" * (2 * MOST_FRAMES), is_whole=True
    )
    assert whole == expected


def test_pieces_grow_where_there_would_be_too_many() -> None:
    assert piece_size(256 * MOST_FRAMES, 256) == 256
    assert piece_size(256 * MOST_FRAMES + 1, 256) == 257
