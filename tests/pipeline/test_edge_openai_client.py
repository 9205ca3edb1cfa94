"""openai-python, as it is, against the edge: whole and streamed, sync and async, and its error classes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import openai
import pytest

from baton_contracts.errors import ErrorBody
from baton_contracts.frames import ToolCallPiece
from baton_contracts.prompt import ToolCall
from baton_contracts.records import ConversationRecord
from tests.support.edge_process import KEY, QUESTION, RunningEdge, Turn, running_edge


@pytest.fixture
async def edge(nats_url: str) -> AsyncIterator[RunningEdge]:
    async with running_edge(nats_url) as running:
        yield running


def client(edge: RunningEdge, key: str = KEY) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{edge.url}/v1", api_key=key, max_retries=0)


async def test_whole_answer(edge: RunningEdge) -> None:
    async with client(edge) as openai_client:
        raw = await openai_client.chat.completions.with_raw_response.create(**QUESTION)
    answer = raw.parse()
    assert answer.choices[0].message.content == "Hello ☃!"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "smollm2-135m"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        5,
        3,
        8,
    )
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.id == f"chatcmpl-{raw.headers['x-request-id']}"
    assert raw.headers["x-baton-model"] == "smollm2-135m"
    assert raw.headers["x-baton-replica"] == "engine_worker-1"
    assert raw.headers["x-baton-cache"] == "none"
    assert raw.headers["x-conversation-id"].startswith("conv-")


async def test_stream_with_usage(edge: RunningEdge) -> None:
    async with client(edge) as openai_client:
        stream = await openai_client.chat.completions.create(
            **QUESTION, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert [chunk.choices[0].delta.content for chunk in chunks[:-1]] == ["", "Hel", "lo", " ☃!", None]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None, None, None, None, "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.total_tokens == 8
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1


async def test_sync_client_streams(edge: RunningEdge) -> None:
    def ask() -> list[str]:
        with openai.OpenAI(base_url=f"{edge.url}/v1", api_key=KEY, max_retries=0) as sync_client:
            stream = sync_client.chat.completions.create(**QUESTION, stream=True)
            return [chunk.choices[0].delta.content or "" for chunk in stream]

    assert "".join(await asyncio.to_thread(ask)) == "Hello ☃!"


async def test_extra_body_reaches_the_relay(edge: RunningEdge) -> None:
    extra = {"top_k": 4, "min_p": 0.1, "retrieval": "off", "conversation_id": "trip", "ignore_eos": True}
    async with client(edge) as openai_client:
        raw = await openai_client.chat.completions.with_raw_response.create(
            **QUESTION, seed=3, extra_body=extra, extra_headers={"cache-control": "no-store"}
        )
    chat = edge.relay.turns[0].handoff.chat
    assert (chat.sampling.top_k, chat.sampling.min_p, chat.sampling.seed) == (4, 0.1, 3)
    assert (chat.retrieval, chat.continue_conversation, chat.use_cache) == ("off", True, False)
    assert raw.headers["x-conversation-id"] == "trip"
    assert edge.relay.turns[0].handoff.envelope.conversation_id == "trip"


async def test_wrong_key_raises_authentication_error(edge: RunningEdge) -> None:
    async with client(edge, "sk-wrong") as openai_client:
        with pytest.raises(openai.AuthenticationError) as caught:
            await openai_client.chat.completions.create(**QUESTION)
    assert caught.value.code == "invalid_api_key"
    assert edge.relay.turns == []


async def test_bad_value_raises_bad_request_with_its_parameter(edge: RunningEdge) -> None:
    async with client(edge) as openai_client:
        with pytest.raises(openai.BadRequestError) as caught:
            await openai_client.chat.completions.create(**QUESTION, temperature=3)
    assert (caught.value.code, caught.value.param) == ("invalid_value", "temperature")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("model_not_found", openai.NotFoundError),
        ("context_length_exceeded", openai.BadRequestError),
        ("no_ready_replica", openai.InternalServerError),
        ("rate_limit_exceeded", openai.RateLimitError),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_of_the_relay_before_the_answer_are_http_errors(
    nats_url: str, code: str, kind: type[openai.APIStatusError], stream: bool
) -> None:
    async def refuse(turn: Turn) -> None:
        await turn.error(ErrorBody(code=code, message="No.", stop="llm_gateway", retry_after_seconds=2.5))  # type: ignore[arg-type]

    async with running_edge(nats_url, refuse) as edge, client(edge) as openai_client:
        with pytest.raises(kind) as caught:
            await openai_client.chat.completions.create(**QUESTION, stream=stream)
        assert caught.value.code == code
        assert caught.value.response.headers["x-baton-stop"] == "llm_gateway"
        assert caught.value.request_id == edge.relay.turns[0].request_id
        if caught.value.status_code in (429, 503):
            assert caught.value.response.headers["retry-after"] == "3"
            assert caught.value.response.headers["retry-after-ms"] == "2500"


async def test_an_error_in_the_stream_raises_api_error(nats_url: str) -> None:
    async def break_off(turn: Turn) -> None:
        await turn.prologue()
        await turn.data("Half an ans")
        await turn.error(ErrorBody(code="stop_lost", message="The engine was lost.", stop="engine_worker"))

    async with running_edge(nats_url, break_off) as edge, client(edge) as openai_client:
        stream = await openai_client.chat.completions.create(**QUESTION, stream=True)
        seen = [(await anext(stream)).choices[0].delta.content for _ in range(2)]
        assert seen == ["", "Half an ans"]
        with pytest.raises(openai.APIError, match="The engine was lost"):
            await anext(stream)


async def test_fifty_streams_at_once_keep_their_own_texts(nats_url: str) -> None:
    async def echo(turn: Turn) -> None:
        await turn.prologue()
        for word in turn.handoff.chat.messages[0].text.split(" "):
            await turn.data(word + " ")
        await turn.end()

    async def ask(openai_client: openai.AsyncOpenAI, number: int) -> str:
        question = " ".join(f"{number}.{index}" for index in range(20))
        stream = await openai_client.chat.completions.create(
            model="auto", messages=[{"role": "user", "content": question}], stream=True
        )
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert text == question + " "
        return text

    async with running_edge(nats_url, echo) as edge, client(edge) as openai_client:
        texts = await asyncio.gather(*(ask(openai_client, number) for number in range(50)))
    assert len(set(texts)) == 50


async def test_citations_reach_the_client_beside_openais_fields(nats_url: str) -> None:
    async def cite(turn: Turn) -> None:
        await turn.prologue(citations=("guide.md › 503",), cache="exact", replica="cache")
        await turn.data("See [1].")
        await turn.end()

    async with running_edge(nats_url, cite) as edge, client(edge) as openai_client:
        raw = await openai_client.chat.completions.with_raw_response.create(**QUESTION)
        assert raw.parse().choices[0].message.to_dict()["baton"] == {"citations": ["guide.md › 503"]}
        assert raw.headers["x-baton-cache"] == "exact"
        stream = await openai_client.chat.completions.create(**QUESTION, stream=True)
        chunks = [chunk.to_dict() async for chunk in stream]
    assert [chunk["baton"] for chunk in chunks if "baton" in chunk] == [{"citations": ["guide.md › 503"]}]


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_reach_the_client_and_the_whole_ones_the_conversation(
    nats_url: str, stream: bool
) -> None:
    async def call(turn: Turn) -> None:
        await turn.prologue()
        await turn.data(tool_calls=(ToolCallPiece(index=0, call_id="call_a", name="add", arguments='{"a"'),))
        await turn.data(tool_calls=(ToolCallPiece(index=0, arguments=": 1}", is_whole=True),))
        await turn.data(tool_calls=(ToolCallPiece(index=1, call_id="call_b", name="add", arguments='{"a"'),))
        await turn.end("length")

    async with running_edge(nats_url, call) as edge, client(edge) as openai_client:
        if stream:
            chunks = await openai_client.chat.completions.create(**QUESTION, stream=True)
            deltas = [d async for chunk in chunks for d in chunk.choices[0].delta.tool_calls or ()]
            assert [(d.index, d.id) for d in deltas] == [(0, "call_a"), (0, None), (1, "call_b")]
        else:
            answer = await openai_client.chat.completions.create(**QUESTION)
            calls = answer.choices[0].message.tool_calls or []
            assert [each.id for each in calls] == ["call_a", "call_b"]
            assert answer.choices[0].message.content is None
        stored = await edge.relay.record("conversation")
    record = ConversationRecord.decode(stored)
    assert record.tool_calls == (ToolCall(call_id="call_a", name="add", arguments='{"a": 1}'),)
    assert (record.answer, record.finish_reason) == ("", "length")
