"""From the HTTP request to the engine: every parameter arrives, and what the engine refuses is a 400."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import pytest_asyncio

from baton_engine import AsyncEngine
from tests.support.tiny_model import tiny_config, tiny_parts
from tests.support.whole_relay import WholeRelay, whole_relay

pytestmark = pytest.mark.asyncio(loop_scope="module")

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 12, "ignore_eos": True, "retrieval": "off"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(nats_url: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[WholeRelay, None]:
    engine = AsyncEngine(tiny_config(), tiny_parts())
    async with whole_relay(nats_url, tmp_path_factory.mktemp("home"), engine) as running:
        yield running


def text(answer: dict[str, Any]) -> str:
    return answer["choices"][0]["message"]["content"]


async def test_biases_and_penalties_reach_the_tokens(relay: WholeRelay) -> None:
    plain = await relay.answer(**GREEDY)
    assert plain["usage"]["completion_tokens"] == 12
    assert text(await relay.answer(**GREEDY, logit_bias={"65": 100})) == "A" * 12
    assert text(await relay.answer(**GREEDY, allowed_token_ids=[67])) == "C" * 12
    two = GREEDY | {"allowed_token_ids": [65, 66]}
    (only,) = set(text(await relay.answer(**two)))
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"bad_words": [only]}):
        punished = set(text(await relay.answer(**two, **penalty)))
        assert punished - {only} == {"A", "B"} - {only}, penalty


async def test_a_prompt_is_cut_where_that_is_asked_for(relay: WholeRelay) -> None:
    long = "x" * 500
    assert await relay.refusal(content=long, **GREEDY) == (400, "context_length_exceeded", "messages")
    cut = await relay.answer(long, **GREEDY, truncate_prompt_tokens=-1)
    assert cut["usage"]["prompt_tokens"] == 256 - 12
    assert (await relay.answer(**GREEDY, truncate_prompt_tokens=5))["usage"]["prompt_tokens"] == 5


async def test_a_salt_keeps_the_cached_prefix_apart(relay: WholeRelay) -> None:
    fields = GREEDY | {"content": "x" * 64, "max_tokens": 1, "temperature": 1}

    async def num_cached(salt: str) -> int:
        usage = (await relay.answer(**fields, cache_salt=salt))["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert await num_cached("ours") == 0
    assert await num_cached("ours") >= 64
    assert await num_cached("mine") == 0


async def test_several_answers_differ_and_are_counted_together(relay: WholeRelay) -> None:
    fields = {"n": 3, "max_tokens": 8, "seed": 5, "temperature": 1, "ignore_eos": True, "retrieval": "off"}
    answer = await relay.answer(**fields)
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert answer["usage"]["completion_tokens"] == 24
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert len(set(texts)) == 3
    again = await relay.answer(**fields, presence_penalty=0.0, user="somebody")
    assert [choice["message"]["content"] for choice in again["choices"]] == texts


async def test_logprobs_are_the_models_own_whatever_the_rules_choose(relay: WholeRelay) -> None:
    fields = GREEDY | {"logprobs": True, "top_logprobs": 3, "logit_bias": {"65": 100}}
    content = (await relay.answer(**fields))["choices"][0]["logprobs"]["content"]
    assert [(token["token"], token["bytes"]) for token in content] == [("A", [65])] * 12
    for token in content:
        best = [other["logprob"] for other in token["top_logprobs"]]
        assert len(best) == 3
        assert best == sorted(best, reverse=True)
        assert token["logprob"] <= best[0] <= 0


async def test_tools_are_shown_to_the_model(relay: WholeRelay) -> None:
    bare = (await relay.answer(**GREEDY | {"max_tokens": 1}))["usage"]["prompt_tokens"]
    tools = [{"type": "function", "function": {"name": "f"}}]
    small = GREEDY | {"max_tokens": 1, "tools": tools, "truncate_prompt_tokens": 200}
    assert (await relay.answer(**small))["usage"]["prompt_tokens"] == 200
    hidden = await relay.answer(**small, tool_choice="none")
    assert hidden["usage"]["prompt_tokens"] == bare


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", None]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "verdict", "schema": SCHEMA}}
SHORT: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "retrieval": "off"}


async def test_an_answer_has_the_form_that_was_asked_for(relay: WholeRelay) -> None:
    for fields in ({"response_format": JSON_SCHEMA}, {"guided_json": SCHEMA}):
        answer = await relay.answer(**SHORT, **fields)
        assert set(json.loads(text(answer))) == {"ok", "kind"}
        assert answer["choices"][0]["finish_reason"] == "stop"
    assert text(await relay.answer(**SHORT, guided_regex="[0-9]{3}")).isdigit()
    chosen = await relay.answer(**SHORT, structured_outputs={"choice": ["yes", "no"]})
    assert text(chosen) in {"yes", "no"}


async def test_several_answers_have_the_form_each(relay: WholeRelay) -> None:
    fields = SHORT | {"temperature": 1.5, "seed": 3, "n": 4, "response_format": JSON_SCHEMA}
    answer = await relay.answer(**fields)
    found = [json.loads(choice["message"]["content"]) for choice in answer["choices"]]
    assert len(found) == 4
    assert all(set(each) == {"ok", "kind"} for each in found)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": JSON_SCHEMA | {"json_schema": {"name": "a", "schema": {"type": 5}}}}, None),
        ({"guided_json": {"type": "object", "properties": 3}}, None),
        ({"guided_regex": "(a"}, None),
        ({"guided_grammar": "root ::= nothing"}, None),
        ({"structured_outputs": {"grammar": "!!"}}, "structured_outputs.grammar"),
    ],
)
async def test_a_form_that_can_not_be_is_a_400(
    relay: WholeRelay, fields: dict[str, Any], param: str | None
) -> None:
    assert await relay.refusal(**SHORT | fields) == (400, "invalid_value", param or next(iter(fields)))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"logit_bias": {"264": 1}}, "logit_bias"),
        ({"stop_token_ids": [9999]}, "stop_token_ids"),
        ({"allowed_token_ids": [264]}, "allowed_token_ids"),
        ({"n": 65}, "n"),
        ({"logprobs": True, "top_logprobs": 20, "allowed_token_ids": [5, 264]}, "allowed_token_ids"),
    ],
)
async def test_what_only_the_engine_can_judge_is_a_400_too(
    relay: WholeRelay, fields: dict[str, Any], param: str
) -> None:
    assert await relay.refusal(**GREEDY | fields) == (400, "invalid_value", param)
