"""From the HTTP request to the engine with tools: calls that must be made, may be made, were made."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from baton_engine import AsyncEngine
from tests.support.tiny_model import TINY_CONFIG, TinyCheckpoint, tiny_config, tiny_parts
from tests.support.whole_relay import WholeRelay, whole_relay

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", None]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": SCHEMA}}
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "switch",
            "parameters": {
                "type": "object",
                "properties": {"on": {"type": "boolean"}},
                "required": ["on"],
            },
        },
    },
    {"type": "function", "function": {"name": "now"}},
]
WITH_TOOLS: dict[str, Any] = {"temperature": 1, "max_tokens": 400, "retrieval": "off"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def roomy(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[WholeRelay, None]:
    """Tools in words take more than the tiny model's 256 tokens."""
    checkpoint = TinyCheckpoint(TINY_CONFIG | {"max_position_embeddings": 2048})
    engine = AsyncEngine(tiny_config(num_blocks=256), tiny_parts(checkpoint))
    async with whole_relay(nats_url, tmp_path_factory.mktemp("home"), engine) as running:
        yield running


async def test_calls_that_must_be_made_are_made(roomy: WholeRelay) -> None:
    for seed in range(3):
        fields = WITH_TOOLS | {"tools": TOOLS, "seed": seed, "parallel_tool_calls": False}
        (choice,) = (await roomy.answer(**fields, tool_choice="required"))["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        (call,) = choice["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] == "switch":
            assert list(arguments) == ["on"]
            assert isinstance(arguments["on"], bool)
        else:
            assert (call["function"]["name"], arguments) == ("now", {})
    named = {"type": "function", "function": {"name": "now"}}
    (choice,) = (await roomy.answer(**WITH_TOOLS, tools=TOOLS, tool_choice=named))["choices"]
    assert {call["function"]["name"] for call in choice["message"]["tool_calls"]} == {"now"}


async def test_strict_tools_leave_text_free_and_hold_calls(roomy: WholeRelay) -> None:
    strict = [{"type": "function", "function": TOOLS[0]["function"] | {"strict": True}}]
    fields = WITH_TOOLS | {"tools": strict, "max_tokens": 40, "n": 3, "seed": 1}
    answer = await roomy.answer(**fields)
    assert {choice["finish_reason"] for choice in answer["choices"]} <= {"length", "stop", "tool_calls"}
    assert any(choice["message"]["content"] for choice in answer["choices"])
    broken = [{"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": 5}}}]
    assert await roomy.refusal(**WITH_TOOLS, tools=broken) == (400, "invalid_value", "tools")


async def test_a_conversation_with_calls_goes_on(roomy: WholeRelay) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "switch", "arguments": '{"on":true}'}}
    messages = [
        {"role": "user", "content": "On!"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "It is on."},
    ]
    short = WITH_TOOLS | {"max_tokens": 4, "messages": messages, "ignore_eos": True}
    answer = await roomy.answer(**short, tools=TOOLS)
    assert answer["usage"]["completion_tokens"] == 4
    fewer = await roomy.answer(**short | {"messages": messages[:1]}, tools=TOOLS)
    assert answer["usage"]["prompt_tokens"] > fewer["usage"]["prompt_tokens"] + len('{"on":true}It is on.')


async def test_tools_that_can_not_be_forced_are_a_400(roomy: WholeRelay) -> None:
    broken = [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]
    fields = WITH_TOOLS | {"tools": broken}
    assert await roomy.refusal(**fields, tool_choice="required") == (400, "invalid_value", "tools")


async def test_with_tools_an_answer_is_calls_or_has_its_form(roomy: WholeRelay) -> None:
    fields = WITH_TOOLS | {"tools": TOOLS, "response_format": JSON_SCHEMA, "n": 6, "seed": 2}
    for choice in (await roomy.answer(**fields))["choices"]:
        message = choice["message"]
        if choice["finish_reason"] == "tool_calls":
            assert {call["function"]["name"] for call in message["tool_calls"]} <= {"switch", "now"}
        else:
            assert set(json.loads(message["content"])) == {"ok", "kind"}
