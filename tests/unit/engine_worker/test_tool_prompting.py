"""Tools for models whose template has no words for them."""

from __future__ import annotations

from typing import Any

from baton_engine_worker.tool_prompting import in_plain_words

ADD: dict[str, Any] = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
USER: dict[str, Any] = {"role": "user", "content": "1 + 1?"}


def call(name: str, arguments: str) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_definitions_stand_behind_the_system_prompt_or_alone() -> None:
    alone = in_plain_words([USER], [ADD])
    assert [message["role"] for message in alone] == ["system", "user"]
    assert '\n{"name": "add", "parameters": {"type": "object"}}\n</tools>' in alone[0]["content"]
    behind = in_plain_words([{"role": "system", "content": "Be kind."}, USER], [ADD])
    assert behind == [{"role": "system", "content": f"Be kind.\n\n{alone[0]['content']}"}, USER]


def test_without_tools_nothing_is_said_of_them() -> None:
    assert in_plain_words([USER], None) == [USER]


def test_calls_and_results_become_turns_that_any_template_takes() -> None:
    messages = [
        USER,
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [call("add", '{"a":1}'), call("f", "")],
        },
        {"role": "tool", "content": "2", "name": "add", "tool_call_id": "c"},
        {"role": "tool", "content": "3", "tool_call_id": "d"},
        {"role": "assistant", "content": None, "tool_calls": [call("add", "{}")]},
    ]
    assert in_plain_words(messages, None) == [
        USER,
        {
            "role": "assistant",
            "content": "Let me see.\n"
            '<tool_call>\n{"name": "add", "arguments": {"a":1}}\n</tool_call>\n'
            '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
        },
        {
            "role": "user",
            "content": "<tool_response>\n2\n</tool_response>\n<tool_response>\n3\n</tool_response>",
        },
        {"role": "assistant", "content": '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'},
    ]
