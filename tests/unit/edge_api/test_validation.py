"""Every rule on the fields of a chat completion, as a table: what is sent, what is wrong with it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.prompt import Part, Sampling
from baton_edge_api.validation import ChatQuestion, param_path, read_chat

USER = {"role": "user", "content": "Hi"}


def read(strict: bool = False, limit: int = 1000, **changes: Any) -> ChatQuestion:
    body = {"model": "auto", "messages": [USER]} | changes
    return read_chat({k: v for k, v in body.items() if v != "absent"}, strict=strict, max_text_chars=limit)


def refusal(**changes: Any) -> tuple[str, str | None]:
    with pytest.raises(RequestFailed) as caught:
        read(**changes)
    return caught.value.error.code, caught.value.error.param


def message(**fields: Any) -> dict[str, Any]:
    return {"messages": [USER, fields]}


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"model": "absent"}, "missing_required_parameter", "model"),
    ({"model": ""}, "invalid_value", "model"),
    ({"model": 5}, "invalid_type", "model"),
    ({"model": None}, "invalid_type", "model"),
    ({"messages": "absent"}, "missing_required_parameter", "messages"),
    ({"messages": []}, "invalid_value", "messages"),
    ({"messages": "Hi"}, "invalid_type", "messages"),
    ({"messages": {}}, "invalid_type", "messages"),
    ({"messages": ["Hi"]}, "invalid_type", "messages[0]"),
    (message(content="x"), "missing_required_parameter", "messages[1].role"),
    (message(role="wizard", content="x"), "invalid_value", "messages[1].role"),
    (message(role=3, content="x"), "invalid_value", "messages[1].role"),
    (message(role="user"), "missing_required_parameter", "messages[1].content"),
    (message(role="user", content=None), "invalid_type", "messages[1].content"),
    (message(role="user", content=7), "invalid_type", "messages[1].content"),
    (message(role="user", content=[]), "invalid_value", "messages[1].content"),
    (message(role="user", content=["x"]), "invalid_type", "messages[1].content[0]"),
    (
        message(role="user", content=[{"type": "text"}]),
        "missing_required_parameter",
        "messages[1].content[0].text",
    ),
    (
        message(role="user", content=[{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]),
        "unsupported_parameter",
        "messages[1].content[1].type",
    ),
    (
        message(role="user", content=[{"type": "smell", "text": "a"}]),
        "invalid_value",
        "messages[1].content[0].type",
    ),
    (
        message(role="user", content=[{"text": "a"}]),
        "missing_required_parameter",
        "messages[1].content[0].type",
    ),
    (message(role="user", content="x", name="a b"), "invalid_value", "messages[1].name"),
    (message(role="assistant", content=None), "invalid_value", "messages[1].content"),
    (
        message(role="assistant", content=None, tool_calls=[{"id": "c"}]),
        "unsupported_parameter",
        "messages[1].tool_calls",
    ),
    (message(role="tool", content="x", tool_call_id="c"), "unsupported_parameter", "messages[1].role"),
    ({"temperature": "0.5"}, "invalid_type", "temperature"),
    ({"temperature": True}, "invalid_type", "temperature"),
    ({"temperature": 2.01}, "invalid_value", "temperature"),
    ({"temperature": -0.1}, "invalid_value", "temperature"),
    ({"temperature": math.nan}, "invalid_value", "temperature"),
    ({"temperature": math.inf}, "invalid_value", "temperature"),
    ({"top_p": 1.1}, "invalid_value", "top_p"),
    ({"max_tokens": 0}, "invalid_value", "max_tokens"),
    ({"max_tokens": -5}, "invalid_value", "max_tokens"),
    ({"max_tokens": "16"}, "invalid_type", "max_tokens"),
    ({"max_tokens": 16.5}, "invalid_type", "max_tokens"),
    ({"max_completion_tokens": 0}, "invalid_value", "max_completion_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "invalid_value", "max_tokens"),
    ({"min_tokens": 6, "max_tokens": 5}, "invalid_value", "min_tokens"),
    ({"n": -1}, "invalid_value", "n"),
    ({"n": 0}, "invalid_value", "n"),
    ({"n": 2}, "unsupported_parameter", "n"),
    ({"n": "1"}, "invalid_type", "n"),
    ({"seed": 2**63}, "invalid_value", "seed"),
    ({"seed": 1.5}, "invalid_type", "seed"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "invalid_value", "stop"),
    ({"stop": ""}, "invalid_value", "stop"),
    ({"stop": ["a", ""]}, "invalid_value", "stop[1]"),
    ({"stop": 5}, "invalid_type", "stop"),
    ({"stop": [5]}, "invalid_type", "stop[0]"),
    ({"stream": "true"}, "invalid_type", "stream"),
    ({"stream": 1}, "invalid_type", "stream"),
    ({"stream_options": {}}, "invalid_value", "stream_options"),
    (
        {"stream_options": {"include_usage": "yes"}, "stream": True},
        "invalid_type",
        "stream_options.include_usage",
    ),
    ({"top_k": -2}, "invalid_value", "top_k"),
    ({"min_p": 1.5}, "invalid_value", "min_p"),
    ({"stop_token_ids": [-1]}, "invalid_value", "stop_token_ids[0]"),
    ({"ignore_eos": "no"}, "invalid_type", "ignore_eos"),
    ({"retrieval": "maybe"}, "invalid_value", "retrieval"),
    ({"retrieval": 1}, "invalid_type", "retrieval"),
    ({"conversation_id": "a.b.>"}, "invalid_value", "conversation_id"),
    ({"conversation_id": "x" * 65}, "invalid_value", "conversation_id"),
    ({"conversation_id": "ok\n"}, "invalid_value", "conversation_id"),
    ({"metadata": {"a": 1}}, "invalid_type", "metadata.a"),
    ({"user": 5}, "invalid_type", "user"),
    ({"tools": []}, "invalid_value", "tools"),
    ({"tools": [{"type": "function"}]}, "unsupported_parameter", "tools"),
    ({"tool_choice": "auto"}, "unsupported_parameter", "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "unsupported_parameter", "tool_choice"),
    ({"functions": [{}]}, "unsupported_parameter", "functions"),
    ({"logprobs": True}, "unsupported_parameter", "logprobs"),
    ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    ({"top_logprobs": 2, "logprobs": True}, "unsupported_parameter", "logprobs"),
    ({"top_logprobs": 21}, "invalid_value", "top_logprobs"),
    ({"logit_bias": {"5": 1.0}}, "unsupported_parameter", "logit_bias"),
    ({"frequency_penalty": 0.5}, "unsupported_parameter", "frequency_penalty"),
    ({"presence_penalty": 3}, "invalid_value", "presence_penalty"),
    ({"repetition_penalty": 1.1}, "unsupported_parameter", "repetition_penalty"),
    ({"response_format": {"type": "json_object"}}, "unsupported_parameter", "response_format"),
    ({"response_format": {"type": "poem"}}, "invalid_value", "response_format.type"),
    ({"response_format": "json"}, "invalid_type", "response_format"),
    ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    ({"audio": {"voice": "x"}}, "unsupported_parameter", "audio"),
    ({"web_search_options": {}}, "unsupported_parameter", "web_search_options"),
    ({"prediction": {"type": "content"}}, "unsupported_parameter", "prediction"),
    ({"guided_json": {"type": "object"}}, "unsupported_parameter", "guided_json"),
]


@pytest.mark.parametrize(("changes", "code", "param"), WRONG, ids=lambda value: str(value)[:50])
def test_wrong_requests_name_their_parameter(changes: dict[str, Any], code: str, param: str) -> None:
    assert refusal(**changes) == (code, param)


@pytest.mark.parametrize("body", [[], "x", 5, None, True])
def test_the_body_must_be_an_object(body: object) -> None:
    with pytest.raises(RequestFailed) as caught:
        read_chat(body, strict=False, max_text_chars=10)
    assert caught.value.error.code == "invalid_type"


NEUTRAL: dict[str, Any] = {
    "tools": None,
    "tool_choice": "none",
    "functions": [],
    "function_call": "none",
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "logit_bias": {},
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "response_format": {"type": "text"},
    "modalities": ["text"],
    "audio": None,
    "stop": [],
    "prediction": None,
    "web_search_options": None,
    "repetition_penalty": 1.0,
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_a_value_that_asks_for_nothing_is_accepted(name: str) -> None:
    question = read(**{name: NEUTRAL[name]})
    assert question.ignored == ()
    assert question.chat.sampling == Sampling()


def test_all_null_is_all_default() -> None:
    names = (
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "user",
        "metadata",
    )
    assert read(**dict.fromkeys(names)) == read()


def test_sampling_reaches_the_relay_as_it_was_sent() -> None:
    question = read(
        max_completion_tokens=7,
        temperature=0,
        top_p=0.5,
        seed=-(2**63),
        stop="END",
        top_k=-1,
        min_p=0.1,
        min_tokens=2,
        stop_token_ids=[3, 4],
        ignore_eos=True,
    )
    assert question.chat.sampling == Sampling(
        max_tokens=7,
        min_tokens=2,
        temperature=0.0,
        top_p=0.5,
        top_k=0,
        min_p=0.1,
        seed=-(2**63),
        stop=("END",),
        stop_token_ids=(3, 4),
        ignore_eos=True,
    )


def test_max_tokens_alone_or_equal_counts() -> None:
    assert read(max_tokens=9).chat.sampling.max_tokens == 9
    assert read(max_tokens=9, max_completion_tokens=9).chat.sampling.max_tokens == 9


def test_messages_become_parts_and_developer_is_system() -> None:
    question = read(
        messages=[
            {"role": "developer", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                "name": "Bo",
            },
            {"role": "assistant", "content": None, "refusal": "No.", "tool_calls": None, "annotations": []},
            {"role": "user", "content": ""},
        ]
    )
    messages = question.chat.messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert messages[1].parts == (Part(text="a"), Part(text="b"))
    assert messages[1].name == "Bo"
    assert [message.text for message in messages] == ["Be brief.", "ab", "No.", ""]


@pytest.mark.parametrize(
    ("asked", "mode"),
    [(True, "on"), (False, "off"), ("on", "on"), ("off", "off"), ("auto", "auto"), (None, "auto")],
)
def test_retrieval_takes_a_switch_or_a_word(asked: object, mode: str) -> None:
    assert read(retrieval=asked).chat.retrieval == mode


def test_only_a_named_conversation_is_continued() -> None:
    assert read(conversation_id="Trip-1").chat.continue_conversation is True
    assert read(conversation_id="Trip-1").conversation_id == "Trip-1"
    assert read().chat.continue_conversation is False


def test_ignored_parameters_are_named_and_can_stand_in_a_header() -> None:
    question = read(store=True, reasoning_effort="low", flux_capacitor=1, **{"x\r\nevil": 1, "é": 2})
    assert question.ignored == ("?", "flux_capacitor", "reasoning_effort", "store")


def test_strict_refuses_unknown_but_not_known_parameters() -> None:
    assert refusal(strict=True, flux_capacitor=1) == ("unknown_parameter", "flux_capacitor")
    assert read(strict=True, store=True).ignored == ("store",)


def test_include_usage_is_read_only_from_stream_options() -> None:
    assert read(stream=True, stream_options={"include_usage": True}).include_usage is True
    assert read(stream=True, stream_options={}).include_usage is False
    assert read(stream=True).include_usage is False


def test_all_text_together_is_bounded() -> None:
    read(limit=2)
    assert refusal(limit=1) == ("request_too_large", "messages")
    parts = [{"type": "text", "text": "abc"}, {"type": "text", "text": "def"}]
    assert refusal(limit=5, messages=[{"role": "user", "content": parts}]) == (
        "request_too_large",
        "messages",
    )


def test_what_was_asked_never_stands_in_the_error() -> None:
    with pytest.raises(RequestFailed) as caught:
        read(temperature="my secret")
    assert "secret" not in caught.value.error.message


def test_without_cache_changes_nothing_else() -> None:
    question = read(seed=4)
    assert question.chat.use_cache is True
    assert question.without_cache().chat == question.chat.model_copy(update={"use_cache": False})


def test_paths_leave_out_the_tags_of_unions() -> None:
    assert (
        param_path(("messages", 2, "«user»", "content", "«parts»", 0, "type"))
        == "messages[2].content[0].type"
    )
