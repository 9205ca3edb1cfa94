"""A3 (vllm#16340, ollama#7881, lmdeploy#3412), A4 (pipecat#4987): tool calls through the relay, both ways.

Two calls have the indexes 0 and 1; id, type and name stand on each first delta; the answer ends with
`tool_calls`; streamed and whole say the same. A call behind thinking has the index 0.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.openai_answers import TOOLS, streamed, whole
from tests.support.scripted_answer import Script
from tests.support.whole_relay import KEY, MODEL, whole_relay

CALLS = (
    'I look.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"a": -2}}\n</tool_call>'
)
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Add and look."}],
    "tools": TOOLS,
    "max_tokens": 200,
}


def pieces(text: str, size: int) -> tuple[str, ...]:
    return tuple(text[start : start + size] for start in range(0, len(text), size))


def thinking_engine(words: Sequence[str]) -> FakeEngine:
    engine = FakeEngine(Script(words=tuple(words)))
    engine.tokenizer.chat_template_source = "{{ messages }}<think>"
    return engine


@pytest.mark.parametrize("size", [1, 7, 500])
async def test_two_calls_streamed_and_whole(nats_url: str, tmp_path: Path, size: int) -> None:
    engine = FakeEngine(Script(words=pieces(CALLS, size)))
    async with whole_relay(nats_url, tmp_path, engine) as relay:
        base_url = str(relay.client.base_url.join("v1"))
        async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0) as client:
            choices, _ = await streamed(client, **QUESTION)
            answer = await client.chat.completions.create(**QUESTION)
    assert [(call.name, json.loads(call.arguments)) for call in choices[0].calls] == [
        ("add", {"a": 1}),
        ("weather", {"a": -2}),
    ]
    assert (choices[0].content, choices[0].finish_reason) == ("I look.", "tool_calls")
    assert choices[0].said == whole(answer)[0].said
    ids = [call.call_id for call in (*choices[0].calls, *whole(answer)[0].calls)]
    assert len(set(ids)) == 4


async def test_a_call_behind_thinking_has_the_index_0(nats_url: str, tmp_path: Path) -> None:
    words = pieces(f"<think>\nHm, two.\n</think>\n\n{CALLS.split('.', 1)[1]}", 5)
    async with whole_relay(nats_url, tmp_path, thinking_engine(words)) as relay:
        base_url = str(relay.client.base_url.join("v1"))
        async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0) as client:
            choices, chunks = await streamed(client, **QUESTION)
            answer = await client.chat.completions.create(**QUESTION)
    assert choices[0].reasoning == "Hm, two."
    assert [call.name for call in choices[0].calls] == ["add", "weather"]
    assert choices[0].content == ""
    assert choices[0].said == whole(answer)[0].said
    assert answer.choices[0].message.content is None
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens_details is not None
    assert usage.completion_tokens_details.reasoning_tokens == 4, "from the one that completes the mark"


async def test_tool_choice_none_leaves_the_text_alone(nats_url: str, tmp_path: Path) -> None:
    async with whole_relay(nats_url, tmp_path, FakeEngine(Script(words=pieces(CALLS, 9)))) as relay:
        answer = await relay.answer(
            **{**QUESTION, "content": "x", "messages": QUESTION["messages"]}, tool_choice="none"
        )
    [choice] = answer["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALLS, "stop")
    assert "tool_calls" not in choice["message"]
