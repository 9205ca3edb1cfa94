from __future__ import annotations

import json
from typing import Any

from baton_contracts.frames import Data, FinishReason, TokenLogprob, ToolCallPiece, Usage
from baton_contracts.openai_answers import ChatCompletion
from baton_contracts.prompt import ToolCall
from baton_edge_api.answer_objects import AnswerParts, usage_object, whole_answer
from baton_edge_api.chat_form import ChatForm

RID = "0af7651916cd43dd8448eb211c80319c"
USAGE = Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2)


def parts(*frames: dict[str, Any]) -> AnswerParts:
    collected = AnswerParts()
    for fields in frames:
        collected.add(Data(request_id=RID, sender="x", seq=0, **fields))
    return collected


def whole(
    *answers: AnswerParts,
    reasons: tuple[FinishReason, ...] = ("stop",),
    citations: tuple[str, ...] = (),
    with_logprobs: bool = False,
) -> dict[str, Any]:
    body = whole_answer(
        RID, "m", 1_700_000_000, answers, reasons, USAGE, citations, ChatForm(with_logprobs=with_logprobs)
    )
    ChatCompletion.model_validate_json(body)
    return json.loads(body)


def test_a_whole_answer() -> None:
    assert whole(parts({"text": "H"}, {"text": "i"}), citations=("a.md",)) == {
        "id": f"chatcmpl-{RID}",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "m",
        "system_fingerprint": "baton-1",
        "choices": [
            {
                "index": 0,
                "message": {
                    "role": "assistant",
                    "content": "Hi",
                    "refusal": None,
                    "baton": {"citations": ["a.md"]},
                },
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 3,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 2},
        },
    }


def test_thinking_and_calls_stand_beside_the_text() -> None:
    first = ToolCallPiece(index=0, call_id="call_a", name="add", arguments='{"a": ')
    rest = ToolCallPiece(index=0, arguments="1}", is_whole=True)
    second = ToolCallPiece(index=1, call_id="call_b", name="add", arguments="{")
    answer = parts(
        {"reasoning": "Hm"}, {"reasoning": "."}, {"tool_calls": (first,)}, {"tool_calls": (rest, second)}
    )
    [choice] = whole(answer, reasons=("tool_calls",))["choices"]
    message = choice["message"]
    assert message["content"] is None
    assert message["reasoning"] == message["reasoning_content"] == "Hm."
    assert message["tool_calls"] == [
        {"id": "call_a", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}},
        {"id": "call_b", "type": "function", "function": {"name": "add", "arguments": "{"}},
    ]
    assert choice["finish_reason"] == "tool_calls"
    assert answer.whole_calls == (ToolCall(call_id="call_a", name="add", arguments='{"a": 1}'),)


def test_an_empty_answer_has_empty_text_and_text_beside_calls_stays() -> None:
    call = ToolCallPiece(index=0, call_id="c", name="f", arguments="{}", is_whole=True)
    assert whole(parts())["choices"][0]["message"]["content"] == ""
    assert whole(parts({"text": "So:", "tool_calls": (call,)}))["choices"][0]["message"]["content"] == "So:"


def test_several_answers_with_logprobs() -> None:
    token = TokenLogprob(text="a", token_bytes=(97,), logprob=-1)
    body = whole(
        parts({"text": "a", "logprobs": (token,)}), parts(), reasons=("stop", "length"), with_logprobs=True
    )
    first, second = body["choices"]
    assert first["logprobs"]["content"] == [
        {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []}
    ]
    assert second["logprobs"] == {"content": [], "refusal": None}
    assert [first["index"], second["index"], second["finish_reason"]] == [0, 1, "length"]


def test_thinking_is_counted_where_there_was_some() -> None:
    usage = Usage(prompt_tokens=1, completion_tokens=7, reasoning_tokens=4)
    assert usage_object(usage)["completion_tokens_details"] == {"reasoning_tokens": 4}
    assert "completion_tokens_details" not in usage_object(USAGE)
