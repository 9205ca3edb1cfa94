"""A1: usage in a stream only where it was asked for: null on every chunk, then one chunk of its own."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.support.edge_process import QUESTION, running_edge


async def events(nats_url: str, **options: Any) -> list[str]:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=QUESTION | {"stream": True} | options)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert "content-encoding" not in response.headers
    return [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]


@pytest.mark.parametrize(
    "options", [{}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}]
)
async def test_no_usage_unless_asked(nats_url: str, options: dict[str, Any]) -> None:
    *chunks, done = await events(nats_url, **options)
    assert done == "[DONE]"
    assert [json.loads(chunk)["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 4 + ["stop"]
    assert not any("usage" in json.loads(chunk) for chunk in chunks)


async def test_usage_is_null_on_every_chunk_and_then_the_only_thing_in_the_last(nats_url: str) -> None:
    *chunks, last, done = await events(nats_url, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert len(chunks) == 5
    for chunk in chunks:
        assert json.loads(chunk)["usage"] is None
        assert len(json.loads(chunk)["choices"]) == 1
    assert json.loads(last)["choices"] == []
    assert json.loads(last)["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": 3,
        "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
