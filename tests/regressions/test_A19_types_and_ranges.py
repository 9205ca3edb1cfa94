"""A19: numbers as strings, NaN, negative n, temperature 3, 5 stops, unknown role, content as parts.

Each wrong value is 400 with its `param`; what the specification allows is accepted; nothing is ever 500, and
the server goes on.
"""

from __future__ import annotations

import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baton_common.errors import RequestFailed
from baton_contracts.errors import http_status
from baton_contracts.openai_completions import CompletionRequest
from baton_contracts.openai_requests import ChatCompletionRequest
from baton_edge_api.completion_reading import read_completion
from baton_edge_api.validation import read_chat
from tests.support.edge_process import QUESTION, running_edge

WRONG: list[tuple[bytes, str]] = [
    (b'"temperature": "0.7"', "temperature"),
    (b'"temperature": 3', "temperature"),
    (b'"temperature": 1e999', "temperature"),
    (b'"max_tokens": "16"', "max_tokens"),
    (b'"n": -1', "n"),
    (b'"stop": ["a", "b", "c", "d", "e"]', "stop"),
    (b'"messages": [{"role": "wizard", "content": "x"}]', "messages[0].role"),
    (b'"messages": [{"role": "user", "content": [{"type": "image_url"}]}]', "messages[0].content[0].type"),
    (b'"seed": 99999999999999999999999', "seed"),
    (b'"frequency_penalty": -2.5', "frequency_penalty"),
    (b'"logit_bias": {"a": 1}', "logit_bias"),
    (b'"logit_bias": {"5": 200}', "logit_bias.5"),
    (b'"tools": [{"type": "function", "function": {"name": "a b"}}]', "tools[0].function.name"),
    (b'"tools": "f"', "tools"),
    (b'"response_format": {"type": "xml"}', "response_format.type"),
    (b'"messages": [{"role": "tool", "content": "x"}]', "messages[0].tool_call_id"),
]


def with_field(field: bytes) -> bytes:
    body = b'{"model": "auto", ' + field
    return body + (
        b"}" if field.startswith(b'"messages"') else b', "messages": [{"role": "user", "content": "Hi"}]}'
    )


ALLOWED: list[dict[str, Any]] = [
    {"n": 2, "presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {"5": -100}},
    {"logprobs": True, "top_logprobs": 20},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": True}}},
    {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
]


async def test_what_the_specification_allows_goes_on(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        for fields in ALLOWED:
            response = await client.post("/v1/chat/completions", json=QUESTION | fields)
            assert (response.status_code, response.headers.get("x-baton-ignored-parameters")) == (200, None)
        assert len(edge.relay.turns) == len(ALLOWED)


async def test_each_is_400_with_its_parameter(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        for field, param in WRONG:
            response = await client.post("/v1/chat/completions", content=with_field(field))
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), field
        nan = await client.post("/v1/chat/completions", content=with_field(b'"temperature": NaN'))
        assert (nan.status_code, nan.json()["error"]["code"]) == (400, "invalid_json")
        assert edge.relay.turns == []
        parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
        allowed = QUESTION | {"messages": [{"role": "user", "content": parts}], "stop": ["a", "b", "c", "d"]}
        assert (await client.post("/v1/chat/completions", json=allowed)).status_code == 200
        assert edge.relay.turns[0].handoff.chat.messages[0].text == "Hello"


PROMPTS: list[tuple[bytes, str]] = [
    (b'"prompt": 5', "prompt"),
    (b'"prompt": ["a", 5]', "prompt[1]"),
    (b'"prompt": [-1]', "prompt[0]"),
    (b'"prompt": "a", "n": -1', "n"),
    (b'"prompt": "a", "temperature": 3', "temperature"),
    (b'"prompt": "a", "max_tokens": "16"', "max_tokens"),
    (b'"prompt": "a", "logprobs": true', "logprobs"),
    (b'"prompt": "a", "stop": ["a", "b", "c", "d", "e"]', "stop"),
]


async def test_completions_name_what_is_wrong_too(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        for fields, param in PROMPTS:
            body = b'{"model": "auto", ' + fields + b"}"
            response = await client.post("/v1/completions", content=body)
            assert (response.status_code, response.json()["error"]["param"]) == (400, param), fields
        nan = await client.post("/v1/completions", content=b'{"model": "a", "prompt": "a", "top_p": NaN}')
        assert (nan.status_code, nan.json()["error"]["code"]) == (400, "invalid_json")
        assert edge.relay.turns == []


_VALUE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_FIELDS = sorted({*ChatCompletionRequest.model_fields, "functions", "audio", "modalities", "echo", "x"})


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(_FIELDS), _VALUE, max_size=4), st.booleans())
def test_no_value_of_any_field_is_more_than_a_refusal(fields: dict[str, Any], keep_messages: bool) -> None:
    body = QUESTION | fields | ({"messages": QUESTION["messages"]} if keep_messages else {})
    try:
        question = read_chat(body, strict=False, max_text_chars=1000)
    except RequestFailed as failed:
        error = failed.error
    else:
        json.loads(question.chat.encode())
        ",".join(question.ignored).encode("ascii")
        return
    assert http_status(error.code) in (400, 413)
    assert error.param is not None


_PROMPT_FIELDS = sorted({*CompletionRequest.model_fields, "messages", "x"})


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(_PROMPT_FIELDS), _VALUE, max_size=4), st.booleans())
def test_no_value_of_any_field_of_a_completion_is_more_than_a_refusal(
    fields: dict[str, Any], keep_prompt: bool
) -> None:
    body = {"model": "m", "prompt": "Say"} | fields | ({"prompt": "Say"} if keep_prompt else {})
    try:
        question = read_completion(body, strict=False, max_text_chars=1000)
    except RequestFailed as failed:
        error = failed.error
    else:
        for chat in question.chats:
            json.loads(chat.encode())
        return
    assert http_status(error.code) in (400, 413)
    assert error.param is not None
