"""Baton as a plain gateway: edge and LLM gateway alone, in front of other servers."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import catalog, plain_gateway
from tests.support.waiting import eventually


async def words(turn: Turn) -> None:
    if turn.asked.body.get("stream"):
        await turn.delta(role="assistant")
        await turn.words(3)
        await turn.done(prompt=5, completion=3)
    else:
        await turn.whole("0 1 2 ")


async def test_streamed_and_whole_answers_and_the_ledger(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(words) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        whole = await plain.ask()
        streamed = await plain.ask(stream=True, stream_options={"include_usage": True})
        models = (await plain.client.get("/v1/models")).json()
        await eventually(lambda: len(plain.rows) == 2)
    assert whole.json()["choices"][0]["message"]["content"] == "0 1 2 "
    assert whole.json()["usage"]["completion_tokens"] == 4
    assert (whole.headers["x-baton-model"], whole.headers["x-baton-replica"]) == ("far", "far/0")
    events = [event[6:] for event in streamed.text.split("\n\n") if event]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"]]
    assert "".join(texts) == "0 1 2 "
    assert chunks[-1]["usage"]["total_tokens"] == 8
    assert "far" in [model["id"] for model in models["data"]]
    assert sorted(row.usage.completion_tokens for row in plain.rows) == [3, 4]
    assert {row.tenant.key_id for row in plain.rows} == {"dev"}


async def test_an_answer_that_is_there_at_once_is_one_message(nats_url: str, tmp_path: Path) -> None:
    subjects: list[str] = []
    async with (
        fake_provider(words) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        await plain.bus.subscribe("baton.v1.reply.*.*", lambda message: subjects.append(message.subject))
        called = await plain.ask(temperature=0)
        cached = await plain.ask(temperature=0)
        await eventually(lambda: len(plain.rows) == 2)
    assert (called.headers["x-baton-cache"], cached.headers["x-baton-cache"]) == ("none", "exact")
    assert [subject.rpartition(".")[2] for subject in subjects] == ["batch", "batch"]


async def test_the_cache_stays_on(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(words) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        first = await plain.ask(temperature=0)
        again = await plain.ask(temperature=0, stream=True)
        await eventually(lambda: len(plain.rows) == 2)
    assert (first.headers["x-baton-cache"], again.headers["x-baton-cache"]) == ("none", "exact")
    assert "0 1 2 " in again.text
    assert len(provider.asked) == 1
    assert [row.outcome for row in plain.rows] == ["finished", "cache_hit"]


async def test_what_only_other_stops_can_do_is_refused_by_name(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(words) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        refused = [
            await plain.ask(retrieval=True),
            await plain.ask(conversation_id="mine"),
            await plain.ask(model="smollm2-135m"),
            await plain.ask(model="nobody"),
        ]
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in refused] == [
        (400, "unsupported_parameter"),
        (400, "unsupported_parameter"),
        (503, "no_ready_replica"),
        (404, "model_not_found"),
    ]
    assert provider.asked == []
