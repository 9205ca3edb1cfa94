"""What a /v1/responses request may say, what is refused and under which name, and what the relay is asked."""

from __future__ import annotations

from typing import Any

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.prompt import ChatRequest
from baton_edge_api.responses.reading import read_response
from baton_edge_api.responses.response_question import ResponseQuestion, with_ids

TOOL: dict[str, Any] = {"type": "function", "name": "add", "parameters": {"type": "object"}}
CALL: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
RESULT: dict[str, Any] = {"type": "function_call_output", "call_id": "c1", "output": "3"}
NAMES_SUB = {"type": "function", "name": "sub"}
USER: dict[str, Any] = {"role": "user", "content": "Q"}
KEY = "0" * 40


def read(strict: bool = False, limit: int = 1000, **changes: Any) -> ResponseQuestion:
    body = {"model": "m", "input": "Hi"} | changes
    return read_response(body, strict=strict, max_text_chars=limit)


def chat(**changes: Any) -> ChatRequest:
    return read(**changes).chat


def refusal(**changes: Any) -> tuple[str, str | None]:
    with pytest.raises(RequestFailed) as failed:
        read(**changes)
    return failed.value.error.code, failed.value.error.param


def test_input_as_text_is_a_users_message() -> None:
    [message] = chat().messages
    assert (message.role, message.text, message.parts[0].origin) == ("user", "Hi", "client")


def test_items_become_messages_and_calls_join_the_answer_before_them() -> None:
    answer = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "A"}]}
    second = CALL | {"call_id": "c2"}
    reasoning = {"type": "reasoning", "id": "rs", "summary": []}
    asked = [{"role": "developer", "content": "D"}, USER, answer, reasoning, CALL, second, RESULT, USER]
    messages = chat(input=asked, instructions="I").messages
    assert [(message.role, message.text) for message in messages] == [
        ("system", "I"),
        ("system", "D"),
        ("user", "Q"),
        ("assistant", "A"),
        ("tool", "3"),
        ("user", "Q"),
    ]
    assert [call.call_id for call in messages[3].tool_calls] == ["c1", "c2"]
    assert (messages[4].tool_call_id, messages[4].parts[0].origin) == ("c1", "tool")


def test_a_call_without_words_has_no_parts_and_an_empty_message_one() -> None:
    messages = chat(input=[USER, CALL, RESULT, {"role": "user", "content": ""}]).messages
    assert messages[1].parts == ()
    assert [part.text for part in messages[3].parts] == [""]


def test_a_call_that_was_cut_off_is_not_shown() -> None:
    assert len(chat(input=[USER, CALL | {"status": "incomplete"}]).messages) == 1
    cut = [USER, CALL | {"status": "incomplete"}, RESULT]
    assert refusal(input=cut) == ("invalid_value", "input[2].call_id")


def test_what_is_left_out_has_its_default() -> None:
    asked = chat()
    assert (asked.trim_history, asked.sampling.truncate_prompt_tokens) == (False, None)
    assert (asked.tool_choice.mode, asked.tool_choice.parallel) == ("auto", True)
    assert chat(tools=[TOOL]).tools[0].strict is True
    assert chat(tools=[TOOL | {"strict": False}]).tools[0].strict is False
    auto = chat(truncation="auto")
    assert (auto.trim_history, auto.sampling.truncate_prompt_tokens) == (True, -1)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"moderation": {}}, "moderation"),
        ({"include": ["reasoning.encrypted_content", "no.such"]}, "include[1]"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, "tools[0].type"),
        ({"tools": [TOOL, {"type": "mcp", "server_label": "x"}]}, "tools[1].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "computer_call_output", "call_id": "c"}]}, "input[0].type"),
    ],
)
def test_what_others_serve_is_refused_by_name(changes: dict[str, Any], param: str) -> None:
    assert refusal(**changes) == ("unsupported_parameter", param)


@pytest.mark.parametrize(
    ("changes", "code", "param"),
    [
        ({"input": []}, "invalid_value", "input"),
        ({"input": 7}, "invalid_type", "input"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "invalid_value", "input"),
        ({"input": [{"role": "owner", "content": "x"}]}, "invalid_value", "input[0].role"),
        ({"input": [{"type": "no_such", "role": "user", "content": "x"}]}, "invalid_value", "input[0].type"),
        ({"input": [RESULT]}, "invalid_value", "input[0].call_id"),
        ({"input": ["x"]}, "invalid_type", "input[0]"),
        ({"model": None}, "invalid_type", "model"),
        ({"temperature": 3}, "invalid_value", "temperature"),
        ({"temperature": "1"}, "invalid_type", "temperature"),
        ({"max_output_tokens": 0}, "invalid_value", "max_output_tokens"),
        ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
        ({"stream_options": {}}, "invalid_value", "stream_options"),
        ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "name": "sub"}},
            "invalid_value",
            "tool_choice",
        ),
        ({"tools": [TOOL, TOOL]}, "invalid_value", "tools[1].name"),
        ({"metadata": {"a": "x" * 513}}, "invalid_value", "metadata.a"),
        ({"conversation": "a b"}, "invalid_value", "conversation"),
        ({"conversation": "c", "previous_response_id": "r"}, "invalid_value", "previous_response_id"),
        ({"input": "x" * 1001}, "request_too_large", "input"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], code: str, param: str) -> None:
    assert refusal(**changes) == (code, param)


@pytest.mark.parametrize(
    ("choice", "mode", "name", "tools"),
    [
        ("none", "none", None, 2),
        ("required", "required", None, 2),
        ({"type": "function", "name": "add"}, "required", "add", 2),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "add"}]},
            "required",
            None,
            1,
        ),
    ],
)
def test_tool_choices(choice: Any, mode: str, name: str | None, tools: int) -> None:
    asked = chat(tools=[TOOL, TOOL | {"name": "sub"}], tool_choice=choice, parallel_tool_calls=False)
    assert (asked.tool_choice.mode, asked.tool_choice.name, len(asked.tools)) == (mode, name, tools)
    assert asked.tool_choice.parallel is False


def test_references_wait_for_the_books() -> None:
    assert not read().refers_to_stored
    assert read(previous_response_id="resp_x", input=[RESULT]).refers_to_stored
    assert read(input=[{"type": "item_reference", "id": "x"}]).refers_to_stored


def test_an_item_keeps_its_own_id_unless_another_has_it() -> None:
    items = read(input=[USER | {"id": "a"}, USER, USER | {"id": "a"}, CALL]).items
    assert [item["id"] for item in with_ids(items, KEY)] == [
        "a",
        f"msg_{KEY}i1",
        f"msg_{KEY}i2",
        f"fc_{KEY}i3",
    ]


def test_an_effort_is_told_to_the_template() -> None:
    variables = chat(reasoning={"effort": "none"}).template_variables
    assert variables == '{"reasoning_effort":"none","enable_thinking":false}'
