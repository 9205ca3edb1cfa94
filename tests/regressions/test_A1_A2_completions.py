"""A1 and A2 for /v1/completions: usage only where it was asked for; what can't begin is an HTTP error."""

from __future__ import annotations

import json
from typing import Any

import httpx

from baton_contracts.errors import ErrorBody
from tests.support.edge_process import Turn, running_edge

QUESTION: dict[str, Any] = {"model": "auto", "prompt": "Say", "stream": True}
PATH = "/v1/completions"


async def events(nats_url: str, **options: Any) -> list[str]:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post(PATH, json=QUESTION | options)
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-accel-buffering"] == "no"
    return [event.removeprefix("data: ") for event in response.text.split("\n\n") if event]


async def test_no_usage_unless_asked(nats_url: str) -> None:
    for options in ({}, {"stream_options": {}}):
        *chunks, done = await events(nats_url, **options)
        assert done == "[DONE]"
        *texts, last = [json.loads(chunk) for chunk in chunks]
        assert [chunk["choices"][0]["finish_reason"] for chunk in texts] == [None] * len(texts)
        assert last["choices"][0]["finish_reason"] == "stop"
        assert not any("usage" in chunk for chunk in (*texts, last))
        assert {chunk["object"] for chunk in texts} == {"text_completion"}


async def test_usage_is_null_on_every_chunk_and_then_the_only_thing_in_the_last(nats_url: str) -> None:
    *chunks, last, done = await events(nats_url, stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert all(json.loads(chunk)["usage"] is None for chunk in chunks)
    assert (json.loads(last)["choices"], json.loads(last)["usage"]["total_tokens"]) == ([], 8)


async def too_long(turn: Turn) -> None:
    error = ErrorBody(code="context_length_exceeded", message="Too long.", param="messages")
    await turn.error(error)


async def test_a_prompt_over_the_context_is_400_json_and_names_the_prompt(nats_url: str) -> None:
    async with (
        running_edge(nats_url, too_long) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        for prompt in ("Say", ["Say", "more"]):
            response = await client.post(PATH, json=QUESTION | {"prompt": prompt})
            assert response.status_code == 400
            assert response.headers["content-type"] == "application/json"
            error = response.json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "prompt")
