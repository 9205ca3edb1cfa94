"""A5, A7 and A9 for /v1/responses: breaking off, silence, and parameters without effect."""

from __future__ import annotations

from typing import Any

import httpx
import openai
import pytest

from baton_contracts.records import ResponseRecord
from tests.support.edge_process import KEY, running_edge
from tests.support.edge_scripts import FORTY, Silence, forty_of_sixty
from tests.support.openai_responses import events_of

ASKED: dict[str, Any] = {"model": "m", "input": "Hello?"}


async def test_forty_tokens_then_it_failed_and_the_forty_are_kept(nats_url: str) -> None:
    async with (
        running_edge(nats_url, forty_of_sixty) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        answer = await client.post("/v1/responses", json=ASKED | {"stream": True})
        spans = await edge.relay.spans()
        record = ResponseRecord.decode(await edge.relay.record("response"))
    events = events_of(answer.text)
    deltas = [event["delta"] for event in events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == FORTY
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    assert "[DONE]" not in answer.text
    assert record.status == "failed"
    assert FORTY in record.output
    stream = next(span for span in spans if span["name"] == "stream")
    assert (stream["status"], stream["attributes"]["chunks"]) == ("error", 40)


async def test_comments_come_in_the_silence_and_the_events_go_on(nats_url: str) -> None:
    silence = Silence()
    async with (
        running_edge(nats_url, silence, keep_alive_seconds=0.02) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
        client.stream("POST", "/v1/responses", json=ASKED | {"stream": True}) as answer,
    ):
        text = ""
        async for piece in answer.aiter_text():
            text += piece
            if text.count(": ping\n\n") >= 3:
                silence.heard.set()
    assert events_of(text)[-1]["response"]["output"][0]["content"][0]["text"] == "At last."


@pytest.mark.parametrize("strict", [False, True])
async def test_what_has_no_effect_is_named_and_what_is_unknown_refused_where_it_is_strict(
    nats_url: str, strict: bool
) -> None:
    async with (
        running_edge(nats_url, strict=strict) as edge,
        openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key=KEY, max_retries=0) as client,
    ):
        known: dict[str, Any] = {
            "reasoning": {"effort": "low"},
            "store": True,
            "user": "u",
            "text": {"verbosity": "low"},
        }
        raw = await client.responses.with_raw_response.create(**ASKED, **known)
        assert raw.headers["x-baton-ignored-parameters"] == "text.verbosity,user"
        assert raw.parse().output_text == "Hello ☃!"
        made_up = {"extra_body": {"made_up": 1}}
        if not strict:
            raw = await client.responses.with_raw_response.create(**ASKED, **made_up)  # type: ignore[arg-type]
            assert raw.headers["x-baton-ignored-parameters"] == "made_up"
            return
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(**ASKED, **made_up)  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.param) == ("unknown_parameter", "made_up")
