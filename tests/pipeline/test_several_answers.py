"""n answers and logprobs through the whole relay, from the engine to openai-python."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
import pytest_asyncio

from baton_engine import AsyncEngine
from tests.support.openai_answers import streamed, whole
from tests.support.tiny_model import tiny_config, tiny_parts
from tests.support.whole_relay import KEY, MODEL, WholeRelay, whole_relay

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Hello?"}],
    "max_tokens": 6,
    "extra_body": {"ignore_eos": True, "retrieval": "off", "allowed_token_ids": list(range(65, 91))},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[WholeRelay, None]:
    async with whole_relay(
        nats_url, tmp_path_factory.mktemp("home"), AsyncEngine(tiny_config(), tiny_parts())
    ) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def client(relay: WholeRelay) -> AsyncGenerator[openai.AsyncOpenAI, None]:
    base_url = str(relay.client.base_url.join("v1"))
    async with openai.AsyncOpenAI(base_url=base_url, api_key=KEY, max_retries=0) as running:
        yield running


async def test_three_answers_streamed_and_whole_are_the_same_three(client: openai.AsyncOpenAI) -> None:
    request = QUESTION | {"n": 3, "seed": 7, "temperature": 1}
    choices, chunks = await streamed(client, **request)
    answer = await client.chat.completions.create(**request)
    assert sorted(choices) == [0, 1, 2]
    texts = [choices[index].content for index in range(3)]
    assert len(set(texts)) == 3
    assert {index: choice.said for index, choice in choices.items()} == {
        index: choice.said for index, choice in whole(answer).items()
    }
    assert [choices[index].finish_reason for index in range(3)] == ["length"] * 3
    order = [chunk.choices[0].index for chunk in chunks[:-1] if chunk.choices[0].delta.content]
    assert order != sorted(order), "the answers come interleaved"
    usage = chunks[-1].usage
    assert usage is not None
    assert answer.usage is not None
    for counted in (usage, answer.usage):
        assert counted.completion_tokens == 18
        assert counted.total_tokens == counted.prompt_tokens + 18
    one = await client.chat.completions.create(**QUESTION)
    assert one.usage is not None
    assert usage.prompt_tokens == answer.usage.prompt_tokens == one.usage.prompt_tokens


async def test_a_choice_ends_when_its_answer_does_not_when_all_do(client: openai.AsyncOpenAI) -> None:
    more = QUESTION["extra_body"] | {"stop_token_ids": list(range(65, 69))}
    request = QUESTION | {"n": 4, "seed": 7, "temperature": 1, "max_tokens": 40, "extra_body": more}
    _, chunks = await streamed(client, **request)
    told = [chunk.choices[0] for chunk in chunks if chunk.choices]
    ends = [place for place, choice in enumerate(told) if choice.finish_reason]
    assert sorted(told[place].index for place in ends) == [0, 1, 2, 3]
    for place in ends:
        assert all(later.index != told[place].index for later in told[place + 1 :])
    assert any(later.delta.content for later in told[ends[0] + 1 : ends[-1]])


async def test_logprobs_stand_with_the_text_of_their_tokens(client: openai.AsyncOpenAI) -> None:
    request = QUESTION | {"temperature": 0, "logprobs": True, "top_logprobs": 2}
    choices, chunks = await streamed(client, **request)
    answer = await client.chat.completions.create(**request)
    assert "".join(choices[0].tokens) == choices[0].content
    assert len(choices[0].tokens) == 6
    assert choices[0].said == whole(answer)[0].said
    for chunk in chunks[:-1]:
        [event] = chunk.choices
        tokens = event.logprobs.content if event.logprobs else None
        assert "".join(token.token for token in tokens or ()) == (event.delta.content or "")
    assert answer.choices[0].logprobs is not None
    for token in answer.choices[0].logprobs.content or ():
        assert token.bytes == list(token.token.encode())
        assert len(token.top_logprobs) == 2
        assert 0 >= token.top_logprobs[0].logprob >= token.top_logprobs[1].logprob
        assert token.logprob <= token.top_logprobs[0].logprob


async def test_answers_with_logprobs_or_several_are_not_taken_from_the_cache(
    client: openai.AsyncOpenAI,
) -> None:
    for fields in ({"n": 2, "seed": 1}, {"logprobs": True, "temperature": 0}):
        for _ in range(2):
            raw = await client.chat.completions.with_raw_response.create(**QUESTION, **fields)
            assert raw.headers["x-baton-cache"] == "none"
            assert len(raw.parse().choices) == fields.get("n", 1)
