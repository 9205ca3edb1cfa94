"""openai-python as it is, against the whole system: four ways to ask give one answer, and the books agree."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.system.client import ask, question
from tests.system.live_system import SMALL, LiveSystem

UNCACHED = {"cache-control": "no-cache"}
QUESTION: dict[str, Any] = {
    "model": SMALL,
    "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
    "temperature": 0,
    "max_tokens": 24,
    "extra_body": {"retrieval": "off"},
    "extra_headers": UNCACHED,
}
STREAM = QUESTION | {"stream": True, "stream_options": {"include_usage": True}}


def options(system: LiveSystem) -> dict[str, Any]:
    return {"base_url": f"{system.url}/v1", "api_key": system.key, "max_retries": 0, "timeout": 60}


def joined(chunks: list[Any]) -> tuple[str, str | None, Any]:
    """Text, finish reason and usage of a stream."""
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    text = "".join(choice.delta.content or "" for choice in choices)
    return text, next(c.finish_reason for c in choices if c.finish_reason), chunks[-1].usage


def counts(usage: Any) -> tuple[int, int, int]:
    return usage.prompt_tokens, usage.completion_tokens, usage.total_tokens


def test_sync_async_stream_and_whole_say_the_same(system: LiveSystem) -> None:
    with openai.OpenAI(**options(system)) as client:
        raw = client.chat.completions.with_raw_response.create(**QUESTION)
        whole = raw.parse()
        streamed = joined(list(client.chat.completions.create(**STREAM)))

    async def both() -> tuple[Any, list[Any]]:
        async with openai.AsyncOpenAI(**options(system)) as client:
            answer = await client.chat.completions.create(**QUESTION)
            stream = await client.chat.completions.create(**STREAM)
            return answer, [chunk async for chunk in stream]

    whole_again, chunks = asyncio.run(both())
    text = whole.choices[0].message.content
    assert "Paris" in text
    assert streamed[0] == whole_again.choices[0].message.content == joined(chunks)[0] == text
    assert {whole.choices[0].finish_reason, streamed[1], joined(chunks)[1]} <= {"stop", "length"}
    assert counts(whole.usage) == counts(streamed[2]) == counts(joined(chunks)[2])
    assert raw.headers["x-baton-cache"] == "none"

    request_id = raw.headers["x-request-id"]
    assert whole.id == f"chatcmpl-{request_id}"
    [row] = system.usage(request_id)
    assert row["outcome"] == "finished"
    assert row["finish_reason"] == whole.choices[0].finish_reason
    booked = row["usage"]
    assert (booked["prompt_tokens"], booked["completion_tokens"]) == counts(whole.usage)[:2]
    summary = system.trace(request_id, status="ok")["summary"]
    assert (summary["prompt_tokens"], summary["completion_tokens"]) == counts(whole.usage)[:2]
    assert summary["stops"] == list(range(1, 11))


def test_the_same_question_again_comes_from_the_cache_and_reads_the_same(system: LiveSystem) -> None:
    asked = question("Name one primary colour.", max_tokens=16)
    first, second = ask(system, asked), ask(system, asked)
    whole = ask(system, question("Name one primary colour.", max_tokens=16, stream=False))
    assert [heard.headers["x-baton-cache"] for heard in (second, whole)] == ["exact", "exact"]
    assert first.text == second.text == whole.text != ""
    assert first.usage == second.usage == whole.usage
    assert [row["outcome"] for row in system.usage(second.request_id)] == ["cache_hit"]


def test_models_and_errors_are_as_the_client_expects(system: LiveSystem) -> None:
    with openai.OpenAI(**options(system)) as client:
        assert SMALL in {model.id for model in client.models.list()}
        with pytest.raises(openai.NotFoundError) as unknown:
            client.chat.completions.create(**(QUESTION | {"model": "no-such-model"}))
        with pytest.raises(openai.BadRequestError) as bad:
            client.chat.completions.create(**(QUESTION | {"temperature": 9}))
    assert unknown.value.code == "model_not_found"
    assert bad.value.param == "temperature"
    stranger = openai.OpenAI(**(options(system) | {"api_key": "sk-wrong"}))
    with stranger, pytest.raises(openai.AuthenticationError):
        stranger.chat.completions.create(**QUESTION)
