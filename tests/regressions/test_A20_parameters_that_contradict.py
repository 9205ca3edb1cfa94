"""A20: an empty list of tools, a choice of an absent tool, top_logprobs without logprobs, stream_options
without stream: 400 each."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.edge_process import QUESTION, running_edge

TOOLS: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "present"}}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": []}, "tools"),
        ({"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
        (TOOLS | {"tool_choice": {"type": "function", "function": {"name": "absent"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex"),
        ({"max_tokens": 5, "min_tokens": 6}, "min_tokens"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"stream_options": {"include_usage": True}, "stream": False}, "stream_options"),
    ],
)
async def test_each_is_400(nats_url: str, fields: dict[str, Any], param: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=QUESTION | fields)
        assert (response.status_code, response.json()["error"]["param"]) == (400, param)
        assert edge.relay.turns == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"best_of": 1, "n": 2}, "best_of"),
        ({"best_of": 2, "stream": True}, "best_of"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"min_tokens": 17}, "min_tokens"),
    ],
)
async def test_completions_that_contradict_themselves(
    nats_url: str, fields: dict[str, Any], param: str
) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/completions", json={"model": "auto", "prompt": "Say"} | fields)
    assert (response.status_code, response.json()["error"]["param"]) == (400, param)
