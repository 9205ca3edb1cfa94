"""openai-python's own accumulator over /v1/responses: its helpers see what was said, and go on from there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pydantic
import pytest

from tests.support.fake_engine import FakeEngine
from tests.support.openai_responses import TOOLS
from tests.support.scripted_answer import Script
from tests.support.whole_relay import KEY, MODEL, whole_relay

CALLS = (
    'I look.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"a": -2}}\n</tool_call>'
)


class Answer(pydantic.BaseModel):
    a: int


async def client_of(relay: Any) -> openai.AsyncOpenAI:
    base_url = str(relay.client.base_url.join("v1"))
    return openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0)


@pytest.fixture
async def thinking(nats_url: str, tmp_path: Path) -> AsyncIterator[openai.AsyncOpenAI]:
    text = f"<think>\nHm, two.\n</think>\n\n{CALLS}"
    words = tuple(text[start : start + 5] for start in range(0, len(text), 5))
    engine = FakeEngine(Script(words=words))
    engine.tokenizer.chat_template_source = "{{ messages }}<think>"
    async with (
        whole_relay(nats_url, tmp_path, engine) as relay,
        await client_of(relay) as client,
    ):
        yield client


async def test_its_accumulator_gathers_thinking_text_and_calls(thinking: openai.AsyncOpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "input": "Add and look.", "tools": TOOLS}
    async with thinking.responses.stream(**asked, max_output_tokens=200) as stream:
        thoughts = [event.delta async for event in stream if event.type == "response.reasoning_text.delta"]
        response = await stream.get_final_response()
    whole = await thinking.responses.create(**asked, max_output_tokens=200)
    assert "".join(thoughts) == "Hm, two."
    assert response.output_text == whole.output_text == "I look."
    for each in (response, whole):
        calls = [item for item in each.output if item.type == "function_call"]
        assert [(call.name, json.loads(call.arguments)) for call in calls] == [
            ("add", {"a": 1}),
            ("weather", {"a": -2}),
        ]
        assert each.usage is not None
        assert each.usage.output_tokens_details.reasoning_tokens == 4
    assert response.id != whole.id


async def test_it_parses_a_structured_answer(nats_url: str, tmp_path: Path) -> None:
    engine = FakeEngine(Script(words=('{"a"', ":4", "2}")))
    async with whole_relay(nats_url, tmp_path, engine) as relay, await client_of(relay) as client:
        async with client.responses.stream(model=MODEL, input="A number?", text_format=Answer) as stream:
            streamed = await stream.get_final_response()
        parsed = await client.responses.parse(model=MODEL, input="A number?", text_format=Answer)
    assert streamed.output_parsed == parsed.output_parsed == Answer(a=42)
