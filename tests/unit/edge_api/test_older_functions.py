"""The older form of tools: functions in, function_call out, as today's clients still send it."""

from __future__ import annotations

import json
from typing import Any

from baton_contracts.frames import Data, ToolCallPiece
from baton_contracts.openai_answers import ChatCompletionChunk
from baton_contracts.prompt import ToolCall, ToolChoice
from baton_edge_api import sse
from baton_edge_api.chat_form import ChatForm
from baton_edge_api.validation import read_chat

FUNCTIONS = [{"name": "add", "parameters": {"type": "object"}}, {"name": "mul"}]
ASKED = {"role": "user", "content": "2+2?"}
CALLED = {"role": "assistant", "content": None, "function_call": {"name": "add", "arguments": '{"a":2}'}}
RESULT = {"role": "function", "name": "add", "content": "4"}


def read(*messages: dict[str, Any], **fields: Any) -> Any:
    body = {"model": "m", "messages": [ASKED, *messages]} | fields
    return read_chat(body, strict=True, max_text_chars=1000)


def test_functions_are_tools_of_which_one_is_called() -> None:
    chat = read(functions=FUNCTIONS).chat
    assert [tool.name for tool in chat.tools] == ["add", "mul"]
    assert chat.tool_choice == ToolChoice(parallel=False)
    named = read(functions=FUNCTIONS, function_call={"name": "mul"}).chat.tool_choice
    assert (named.mode, named.name) == ("required", "mul")
    assert read(functions=FUNCTIONS, function_call="none").chat.tool_choice.mode == "none"


def test_a_call_and_its_result_find_each_other() -> None:
    chat = read(CALLED, RESULT, ASKED, CALLED, RESULT).chat
    first, second = chat.messages[1].tool_calls[0], chat.messages[4].tool_calls[0]
    assert (first.name, first.arguments) == ("add", '{"a":2}')
    assert first.call_id != second.call_id
    assert [chat.messages[place].tool_call_id for place in (2, 5)] == [first.call_id, second.call_id]
    assert [chat.messages[place].role for place in (2, 5)] == ["tool", "tool"]
    assert isinstance(first, ToolCall)


def test_an_answer_names_its_call_and_its_end_as_it_was_asked() -> None:
    chunks = sse.ChunkWriter("0" * 32, "m", 1, ChatForm(functions=True), include_usage=False)
    piece = ToolCallPiece(index=0, call_id="c", name="add", arguments='{"a":')
    frames = [piece, ToolCallPiece(index=0, arguments="2}")]
    events = [
        chunks.data(Data(request_id="0" * 32, sender="x", seq=0, tool_calls=(piece,))) for piece in frames
    ]
    events.append(chunks.finish(["tool_calls"], ()))
    for event in events:
        ChatCompletionChunk.model_validate_json(event[6:])
    choices = [json.loads(event[6:])["choices"][0] for event in events]
    assert choices[0]["delta"] == {"function_call": {"name": "add", "arguments": '{"a":'}}
    assert choices[1]["delta"] == {"function_call": {"arguments": "2}"}}
    assert choices[2]["finish_reason"] == "function_call"


def test_whether_the_older_form_is_wanted_shows_in_the_form_of_the_answer() -> None:
    assert read(functions=FUNCTIONS).form.functions
    assert not read().form.functions
