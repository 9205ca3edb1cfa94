from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from baton_contracts.frames import Usage
from baton_contracts.openai_api import ChatCompletion, ChatCompletionChunk
from baton_edge_api import sse

RID = "0af7651916cd43dd8448eb211c80319c"
HEAD = (
    b'data: {"id":"chatcmpl-0af7651916cd43dd8448eb211c80319c","object":"chat.completion.chunk",'
    b'"created":1700000000,"model":"m","system_fingerprint":"baton-1","choices":['
)
USAGE = Usage(prompt_tokens=5, completion_tokens=3, cached_tokens=2)


def writer(include_usage: bool = False, model: str = "m") -> sse.ChunkWriter:
    return sse.ChunkWriter(RID, model, 1_700_000_000, include_usage=include_usage)


def test_bytes_of_a_stream_without_usage() -> None:
    chunks = writer()
    assert chunks.role() == HEAD + (
        b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
    )
    assert (
        chunks.text('say "hi"\n☃')
        == HEAD
        + (
            '{"index":0,"delta":{"content":"say \\"hi\\"\\n☃"},"logprobs":null,"finish_reason":null}]}\n\n'
        ).encode()
    )
    assert chunks.finish("length", ()) == HEAD + (
        b'{"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}]}\n\n'
    )


def test_bytes_of_a_stream_with_usage() -> None:
    chunks = writer(include_usage=True)
    for event in (chunks.role(), chunks.text("x"), chunks.finish("stop", ())):
        assert event.endswith(b'}],"usage":null}\n\n')
    assert chunks.usage(USAGE) == HEAD + (
        b'],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,'
        b'"prompt_tokens_details":{"cached_tokens":2}}}\n\n'
    )


def test_citations_stand_on_the_last_chunk() -> None:
    event = writer(include_usage=True).finish("stop", ("a.md", "b.md"))
    assert event.endswith(b'"finish_reason":"stop"}],"baton":{"citations":["a.md","b.md"]},"usage":null}\n\n')


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.booleans())
def test_any_text_is_one_event_and_comes_back(text: str, include_usage: bool) -> None:
    event = writer(include_usage, model='m"\n').text(text)
    assert event.startswith(b"data: ")
    assert event.count(b"\n") == 2
    assert event.endswith(b"\n\n")
    chunk = ChatCompletionChunk.model_validate_json(event[6:])
    assert chunk.choices[0].delta.content == text
    assert chunk.model == 'm"\n'


def test_all_events_fit_the_published_model() -> None:
    chunks = writer(include_usage=True)
    for event in (chunks.role(), chunks.text("x"), chunks.finish("stop", ("a",)), chunks.usage(USAGE)):
        ChatCompletionChunk.model_validate_json(event[6:])


def test_a_whole_answer() -> None:
    body = sse.whole_answer(RID, "m", 1_700_000_000, "Hi", "stop", USAGE, ("a.md",))
    ChatCompletion.model_validate_json(body)
    assert json.loads(body) == {
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
