from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from baton_contracts.frames import Data, RatedToken, TokenLogprob, ToolCallPiece, Usage
from baton_contracts.openai_answers import ChatCompletionChunk
from baton_edge_api import sse
from baton_edge_api.chat_form import ChatForm

RID = "0af7651916cd43dd8448eb211c80319c"
HEAD = (
    b'data: {"id":"chatcmpl-0af7651916cd43dd8448eb211c80319c","object":"chat.completion.chunk",'
    b'"created":1700000000,"model":"m","system_fingerprint":"baton-1","choices":['
)
USAGE = Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2)


def writer(include_usage: bool = False, model: str = "m", **form: Any) -> sse.ChunkWriter:
    return sse.ChunkWriter(RID, model, 1_700_000_000, ChatForm(**form), include_usage=include_usage)


def data(text: str = "", **more: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, text=text, **more)


def choice(event: bytes) -> dict[str, Any]:
    ChatCompletionChunk.model_validate_json(event[6:])
    [only] = json.loads(event[6:])["choices"]
    return only


def test_bytes_of_a_stream_without_usage() -> None:
    chunks = writer()
    assert chunks.role() == HEAD + (
        b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
    )
    assert (
        chunks.data(data('say "hi"\n☃'))
        == HEAD
        + (
            '{"index":0,"delta":{"content":"say \\"hi\\"\\n☃"},"logprobs":null,"finish_reason":null}]}\n\n'
        ).encode()
    )
    assert chunks.finish(("length",), ()) == HEAD + (
        b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}\n\n'
    )


def test_bytes_of_a_stream_with_usage() -> None:
    chunks = writer(include_usage=True)
    for event in (chunks.role(), chunks.data(data("x")), chunks.finish(("stop",), ())):
        assert event.endswith(b'}],"usage":null}\n\n')
    assert chunks.usage(USAGE) == HEAD + (
        b'],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,'
        b'"prompt_tokens_details":{"cached_tokens":2}}}\n\n'
    )


def test_citations_stand_on_the_last_chunk() -> None:
    event = writer(include_usage=True).finish(("stop",), ("a.md", "b.md"))
    assert event.endswith(b'"finish_reason":"stop"}],"baton":{"citations":["a.md","b.md"]},"usage":null}\n\n')


@given(st.text(min_size=1, alphabet=st.characters(exclude_categories=["Cs"])), st.booleans())
def test_any_text_is_one_event_and_comes_back(text: str, include_usage: bool) -> None:
    event = writer(include_usage, model='m"\n').data(data(text))
    assert event.startswith(b"data: ")
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")
    chunk = ChatCompletionChunk.model_validate_json(event[6:])
    assert chunk.choices[0].delta.content == text
    assert chunk.model == 'm"\n'


def test_all_events_fit_the_published_model() -> None:
    chunks = writer(include_usage=True)
    for event in (
        chunks.role(),
        chunks.data(data("x")),
        chunks.finish(("stop",), ("a",)),
        chunks.usage(USAGE),
    ):
        ChatCompletionChunk.model_validate_json(event[6:])


def test_a_frame_without_anything_is_no_event() -> None:
    assert writer().data(data(token_ids=(1, 2))) == b""


def test_thinking_goes_by_both_names() -> None:
    event = choice(writer().data(data(reasoning="Hm.")))
    assert event["delta"] == {"reasoning": "Hm.", "reasoning_content": "Hm."}


def test_a_call_begins_with_id_type_and_name_and_goes_on_with_arguments() -> None:
    begin = ToolCallPiece(index=1, call_id="call_1", name="add", arguments='{"a"')
    more = ToolCallPiece(index=1, arguments=": 1}", is_whole=True)
    events = [choice(writer().data(data(tool_calls=(piece,)))) for piece in (begin, more)]
    assert events[0]["delta"]["tool_calls"] == [
        {"index": 1, "id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a"'}}
    ]
    assert events[1]["delta"]["tool_calls"] == [{"index": 1, "function": {"arguments": ": 1}"}}]
    assert events[0]["finish_reason"] is None


def test_logprobs_stand_on_the_event_of_their_text() -> None:
    top = RatedToken(text="So", token_bytes=(83, 111), logprob=-0.5)
    token = TokenLogprob(text="\ufffd", token_bytes=(226,), logprob=-1.5, top=(top,))
    event = choice(writer(with_logprobs=True).data(data("Hm", logprobs=(token,))))
    assert event["logprobs"] == {
        "content": [
            {
                "token": "\ufffd",
                "logprob": -1.5,
                "bytes": [226],
                "top_logprobs": [{"token": "So", "logprob": -0.5, "bytes": [83, 111]}],
            }
        ],
        "refusal": None,
    }
    held = choice(writer(with_logprobs=True).data(data(logprobs=(token,))))
    assert held["delta"] == {"content": ""}


def test_several_answers_are_told_apart_by_index() -> None:
    chunks = writer()
    assert choice(chunks.role(2))["index"] == 2
    assert choice(chunks.data(data("x", index=1)))["index"] == 1
    events = chunks.finish(("stop", "tool_calls"), ("a.md",)).split(b"\n\n")[:-1]
    ends = [json.loads(event[6:]) for event in events]
    assert [(end["choices"][0]["index"], end["choices"][0]["finish_reason"]) for end in ends] == [
        (0, "stop"),
        (1, "tool_calls"),
    ]
    assert ["baton" in end for end in ends] == [False, True]


def test_an_answer_that_ends_before_the_others_ends_at_once_and_once() -> None:
    chunks = writer()
    events = chunks.data(data("x", index=1, finish_reason="stop")).split(b"\n\n")[:-1]
    assert [(one["delta"], one["finish_reason"]) for one in map(choice, events)] == [
        ({"content": "x"}, None),
        ({}, "stop"),
    ]
    assert choice(chunks.data(data(index=2, finish_reason="length")))["finish_reason"] == "length"
    rest = chunks.finish(("stop", "stop", "length"), ("a.md",))
    assert (choice(rest)["index"], json.loads(rest[6:])["baton"]) == (0, {"citations": ["a.md"]})
