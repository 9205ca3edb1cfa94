"""Which structure an answer is held to."""

from __future__ import annotations

from typing import Any

import pytest

from baton_contracts import prompt as contract
from baton_contracts.handoffs import EngineWork
from baton_engine import InvalidParameter, StructuredOutput
from baton_engine.structured import tool_calls
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.structures import can_be_eased, leaves_no_room, structure_of

HERMES = Dialect("hermes", template_shows_tools=True)
LLAMA = Dialect("llama3_json", template_shows_tools=True)
QUESTION = contract.Message(role="user", parts=(contract.Part(text="x"),))
ADD = contract.Tool(name="add", parameters='{"type":"object","properties":{"a":{"type":"integer"}}}')


def work(form: dict[str, Any] | None = None, *tools: contract.Tool, **choice: Any) -> EngineWork:
    structured = contract.StructuredOutput.model_validate(form) if form else None
    return EngineWork(
        model="m",
        prompt=contract.Prompt(messages=(QUESTION,), tools=tools),
        sampling=contract.Sampling(structured=structured),
        tool_choice=contract.ToolChoice(**choice),
    )


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"kind": "json_object"}, {"json_object": True}),
        ({"kind": "json_schema", "text": '{"type":"null"}'}, {"json_schema": '{"type":"null"}'}),
        ({"kind": "regex", "text": "a+"}, {"regex": "a+"}),
        ({"kind": "choice", "choices": ["b", "a"]}, {"choice": ("b", "a")}),
        ({"kind": "grammar", "text": 'root ::= "x"'}, {"grammar": 'root ::= "x"'}),
    ],
)
def test_every_form_has_its_structure(form: dict[str, Any], expected: dict[str, Any]) -> None:
    found = structure_of(work(form | {"param": "guided"}), HERMES, after="</think>")
    assert found == StructuredOutput(**expected, after="</think>", param="guided")


def test_without_a_form_there_is_none() -> None:
    assert structure_of(work(), HERMES) is None


def test_a_form_that_is_wrong_is_refused_under_the_clients_name_for_it() -> None:
    with pytest.raises(InvalidParameter) as rejected:
        structure_of(work({"kind": "json_schema", "text": "[1", "param": "response_format"}), HERMES)
    assert rejected.value.param == "response_format"


def test_calls_that_must_be_made_are_the_structure() -> None:
    both = contract.Tool(name="now")
    found = structure_of(work(None, ADD, both, mode="required"), HERMES, after="</think>")
    assert found is not None
    assert (found.kind, found.param, found.after) == ("tool_calls", "tools", "</think>")
    tools = [
        {"name": "add", "parameters": ADD.parameters, "strict": False},
        {"name": "now", "parameters": "", "strict": False},
    ]
    assert found == tool_calls.constraint(tools, None, "hermes", after="</think>")
    named = structure_of(work(None, ADD, both, mode="required", name="now", parallel=False), LLAMA)
    assert named == tool_calls.constraint(tools, "now", "llama3_json", parallel=False)


def test_calls_that_must_be_made_leave_no_text_to_have_a_form() -> None:
    form = {"kind": "json_object", "param": "response_format"}
    found = structure_of(work(form, ADD, mode="required"), HERMES)
    assert found is not None
    assert found.kind == "tool_calls"


def test_a_form_beside_tools_that_may_be_called_is_one_of_both() -> None:
    form = {"kind": "json_object", "param": "response_format"}
    found = structure_of(work(form, ADD), HERMES)
    plain = StructuredOutput(json_object=True, param="response_format")
    tools = [{"name": "add", "parameters": ADD.parameters}]
    assert found == tool_calls.constraint(tools, None, "hermes", otherwise=plain)
    assert structure_of(work(form, mode="none"), HERMES) == plain


def test_calls_that_may_be_made_are_held_to_their_schemas() -> None:
    for is_strict in (True, False):
        tool = ADD.model_copy(update={"strict": is_strict})
        tools = [{"name": "add", "parameters": ADD.parameters, "strict": is_strict}]
        assert structure_of(work(None, tool), HERMES) == tool_calls.calls_in_text(tools, "hermes")
        thought = structure_of(work(None, tool), HERMES, calls_after="</think>")
        assert thought == tool_calls.calls_in_text(tools, "hermes", after="</think>")
        assert structure_of(work(None, tool, mode="none"), HERMES) is None


def test_what_is_not_strict_is_left_free_where_holding_it_could_cost_the_answer() -> None:
    strict = ADD.model_copy(update={"strict": True})
    only_some = {"sampling": contract.Sampling(allowed_token_ids=(1, 2))}
    for tool, is_held in ((ADD, False), (strict, True)):
        assert (structure_of(work(None, tool), HERMES, calls_after=None) is not None) is is_held
        rare = work(None, tool).model_copy(update=only_some)
        assert (structure_of(rare, HERMES) is not None) is is_held


def test_only_free_calls_can_be_eased() -> None:
    assert can_be_eased(work(None, ADD))
    assert not can_be_eased(work(None, ADD, mode="required"))
    assert not can_be_eased(work({"kind": "json_object", "param": "response_format"}, ADD))
    assert not can_be_eased(work())


def test_thinking_has_room_only_before_what_is_free() -> None:
    form = {"kind": "json_object", "param": "response_format"}
    assert leaves_no_room(work(form))
    assert leaves_no_room(work(None, ADD, mode="required"))
    assert not leaves_no_room(work(None, ADD.model_copy(update={"strict": True})))
    assert not leaves_no_room(work())
