"""What the model's chat template is given of a prompt, and what it makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.prompt import (
    Message,
    Part,
    Prompt,
    Tool,
    ToolCall,
)
from baton_engine import InvalidParameter, QueueFull
from baton_engine_worker import prompting
from baton_engine_worker.dialect import Dialect
from tests.support.fake_engine import FakeEngine
from tests.support.prompts import prompt, raw

PLAIN = Dialect()
SHOWS_TOOLS = Dialect(template_shows_tools=True)


def test_parts_are_joined_and_a_developer_speaks_as_the_system() -> None:
    asked = prompt(("developer", ("Be ", "brief.")), ("user", ("[1] doc", "Why?")), ("tool", ("42",)))
    assert prompting.chat_messages(asked) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "[1] docWhy?"},
        {"role": "tool", "content": "42"},
    ]


def test_calls_results_and_null_content_as_templates_expect_them() -> None:
    call = ToolCall(call_id="c1", name="add", arguments='{"a":1}')
    asked = Prompt(
        messages=(
            Message(role="assistant", parts=(), tool_calls=(call,)),
            Message(role="tool", parts=(Part(text="3", origin="tool"),), tool_call_id="c1"),
            Message(role="tool", parts=(Part(text="4", origin="tool"),), tool_call_id="of a lost message"),
        )
    )
    function = {"name": "add", "arguments": '{"a":1}'}
    assert prompting.chat_messages(asked) == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "3", "name": "add", "tool_call_id": "c1"},
        {"role": "tool", "content": "4", "tool_call_id": "of a lost message"},
    ]


def test_tools_as_templates_expect_them() -> None:
    tools = (Tool(name="f", description="Does f.", parameters='{"type":"object"}'), Tool(name="g"))
    assert prompting.chat_tools(tools) == [
        {
            "type": "function",
            "function": {"name": "f", "description": "Does f.", "parameters": {"type": "object"}},
        },
        {"type": "function", "function": {"name": "g", "parameters": {"type": "object", "properties": {}}}},
    ]
    assert prompting.chat_tools(()) is None
    with pytest.raises(InvalidParameter) as rejected:
        prompting.chat_tools((Tool(name="f", parameters="[1"),))
    assert rejected.value.param == "tools[0].function.parameters"


def test_template_variables_reach_the_template() -> None:
    asked = prompt(("user", ("four",))).model_copy(update={"template_variables": '{"enable_thinking":false}'})
    template = Template()
    prompting.prompt_token_ids(asked, template, PLAIN)
    assert template.variables == {"enable_thinking": False}
    broken = asked.model_copy(update={"template_variables": "[]"})
    with pytest.raises(InvalidParameter) as rejected:
        prompting.prompt_token_ids(broken, template, PLAIN)
    assert rejected.value.param == "chat_template_kwargs"


def test_a_template_that_shows_tools_gets_them_and_another_gets_words() -> None:
    asked = prompt(("user", ("four",))).model_copy(update={"tools": (Tool(name="add"),)})
    template = Template()
    prompting.prompt_token_ids(asked, template, SHOWS_TOOLS)
    assert [tool["function"]["name"] for tool in template.tools] == ["add"]
    assert template.messages == [{"role": "user", "content": "four"}]
    prompting.prompt_token_ids(asked, template, PLAIN)
    assert template.tools is None
    assert [message["role"] for message in template.messages] == ["system", "user"]
    assert '{"name": "add"' in template.messages[0]["content"]


class Template:
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.variables: dict[str, Any] = {}
        self.messages: list[dict[str, Any]] = []
        self.tools: Any = None

    def apply_chat_template(self, messages: list[dict[str, Any]], tools: Any, **variables: Any) -> list[int]:
        if self.error:
            raise self.error
        self.variables, self.messages, self.tools = variables, messages, tools
        return [len(message["content"]) for message in messages]


def test_a_template_that_does_not_take_the_messages_is_the_clients_fault() -> None:
    assert prompting.prompt_token_ids(prompt(("user", ("four",))), Template(), PLAIN) == [4]
    with pytest.raises(InvalidParameter) as rejected:
        prompting.prompt_token_ids(
            prompt(("assistant", ("x",))), Template(ValueError("roles must alternate")), PLAIN
        )
    assert rejected.value.param == "messages"
    assert "roles must alternate" in rejected.value.message
    with pytest.raises(QueueFull):
        prompting.prompt_token_ids(prompt(("user", ("x",))), Template(QueueFull(1, 1, "requests")), PLAIN)


def test_a_raw_prompt_is_its_text_and_no_chat() -> None:
    tokenizer = FakeEngine().tokenizer
    assert prompting.prompt_token_ids(raw(), tokenizer, PLAIN) == [2, 1, 1]
    assert prompting.prompt_token_ids(raw(add_special_tokens=False), tokenizer, PLAIN) == [1, 1]


def test_ids_that_spell_the_judged_text_are_used_and_others_refused() -> None:
    tokenizer = FakeEngine().tokenizer
    assert prompting.prompt_token_ids(raw("<7><8>", token_ids=(7, 8)), tokenizer, PLAIN) == [7, 8]
    with pytest.raises(InvalidParameter) as refused:
        prompting.prompt_token_ids(raw("<7><9>", token_ids=(7, 8)), tokenizer, PLAIN)
    assert refused.value.param == "prompt"


def test_the_last_message_goes_on_or_no_answer_is_opened() -> None:
    seen: list[dict[str, Any]] = []

    class Watched:
        def apply_chat_template(self, messages: Any, tools: Any = None, **variables: Any) -> list[int]:
            seen.append(variables)
            return [1]

    for rendering in ("chat", "unopened", "continued"):
        asked = prompt(("user", ("Hi",))).model_copy(update={"rendering": rendering})
        prompting.prompt_token_ids(asked, Watched(), PLAIN)
    assert seen == [
        {},
        {"add_generation_prompt": False},
        {"add_generation_prompt": False, "continue_final_message": True},
    ]
