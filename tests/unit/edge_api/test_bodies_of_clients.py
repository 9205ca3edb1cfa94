"""Bodies as clients sent them (recorded 2026-11-30): each is understood, and what has no effect is named."""

from __future__ import annotations

from typing import Any

import pytest

from baton_edge_api.responses.reading import read_response
from baton_edge_api.validation import read_chat

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}

CHATS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "@ai-sdk/openai 3.0.141": (
        {
            "model": "m",
            "logprobs": True,
            "top_logprobs": 2,
            "user": "u",
            "parallel_tool_calls": False,
            "max_tokens": 60,
            "temperature": 0,
            "verbosity": "low",
            "store": False,
            "metadata": {"a": "b"},
            "prediction": {"type": "content", "content": "Hello"},
            "reasoning_effort": "low",
            "service_tier": "auto",
            "prompt_cache_key": "x",
            "safety_identifier": "y",
            "messages": [{"role": "user", "content": "Say hello"}],
        },
        {"user", "verbosity", "store", "metadata", "prediction", "service_tier"}
        | {"prompt_cache_key", "safety_identifier"},
    ),
    "openai-agents 0.24.0": (
        {
            "model": "m",
            "messages": [{"content": "Be brief.", "role": "system"}, {"role": "user", "content": "Hi"}],
            "logprobs": True,
            "max_tokens": 40,
            "metadata": {"a": "b"},
            "prompt_cache_retention": "24h",
            "reasoning_effort": "low",
            "store": True,
            "top_logprobs": 2,
            "verbosity": "low",
        },
        {"metadata", "prompt_cache_retention", "store", "verbosity"},
    ),
}
RESPONSES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "litellm 1.110.2, messages of Anthropic's kind": (
        {
            "model": "m",
            "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Say hello"}]}
            ],
            "include": ["reasoning.encrypted_content"],
            "max_output_tokens": 30,
        },
        {"include.reasoning.encrypted_content"},
    ),
    "openai-agents 0.24.0": (
        {
            "model": "m",
            "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
            "input": [{"content": "Hi", "role": "user"}],
            "instructions": "Be brief.",
            "max_output_tokens": 40,
            "metadata": {"a": "b"},
            "prompt_cache_retention": "24h",
            "reasoning": {"effort": "low", "summary": "auto"},
            "store": True,
            "text": {"verbosity": "low"},
            "tools": [],
            "top_logprobs": 2,
            "truncation": "auto",
        },
        {"include.reasoning.encrypted_content", "prompt_cache_retention", "reasoning.summary"}
        | {"text.verbosity"},
    ),
    "@ai-sdk/openai 3.0.141": (
        {
            "model": "m",
            "input": [
                {"role": "system", "content": "Be brief"},
                {"role": "user", "content": [{"type": "input_text", "text": "Say hello"}]},
            ],
            "tools": [{"type": "function", "name": "get_weather", "parameters": CITY}],
            "tool_choice": "auto",
            "temperature": 0,
            "max_output_tokens": 60,
            "metadata": {"a": "b"},
            "parallel_tool_calls": False,
            "store": False,
            "stream": True,
        },
        set(),
    ),
}


@pytest.mark.parametrize("client", CHATS)
def test_a_chat_is_understood(client: str) -> None:
    body, ignored = CHATS[client]
    question = read_chat(body, strict=True, max_text_chars=1000)
    assert set(question.ignored) == ignored
    assert question.chat.sampling.logprobs == 2


@pytest.mark.parametrize("client", RESPONSES)
def test_a_response_is_understood(client: str) -> None:
    body, ignored = RESPONSES[client]
    question = read_response(body, strict=True, max_text_chars=1000)
    assert set(question.ignored) == ignored
