"""Every rule on the fields of a chat completion, as a table: what is sent, what is wrong with it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.prompt import Message, Part, Sampling, Tool, ToolCall, ToolChoice
from baton_edge_api.typed_body import param_path
from baton_edge_api.validation import ChatQuestion, read_chat

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


CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
JSON_MODE = {"type": "json_object"}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name} | more}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def allowed(mode: str, *names: str) -> dict[str, Any]:
    chosen = {"mode": mode, "tools": [named(name) for name in names]}
    return {"type": "allowed_tools", "allowed_tools": chosen}


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
    (message(role="assistant", content=None, tool_calls=[]), "invalid_value", "messages[1].content"),
    (
        message(role="assistant", content=None, tool_calls=[{"id": "c"}]),
        "missing_required_parameter",
        "messages[1].tool_calls[0].type",
    ),
    (
        message(
            role="assistant", content=None, tool_calls=[CALL | {"function": {"name": "f", "arguments": {}}}]
        ),
        "invalid_type",
        "messages[1].tool_calls[0].function.arguments",
    ),
    (
        message(role="assistant", content=None, tool_calls=[CALL | {"type": "custom"}]),
        "unsupported_parameter",
        "messages[1].tool_calls[0].type",
    ),
    (
        message(role="assistant", content=None, function_call={"name": "f", "arguments": {}}),
        "invalid_type",
        "messages[1].function_call.arguments",
    ),
    (message(role="tool", content="x"), "missing_required_parameter", "messages[1].tool_call_id"),
    (message(role="tool", content="x", tool_call_id="c"), "invalid_value", "messages[1].tool_call_id"),
    (message(role="tool", content=None, tool_call_id="c"), "invalid_type", "messages[1].content"),
    (message(role="function", content="x", name="f"), "invalid_value", "messages[1].name"),
    (message(role="function", content="x"), "missing_required_parameter", "messages[1].name"),
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
    ({"n": 129}, "invalid_value", "n"),
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
    ({"tools": {}}, "invalid_type", "tools"),
    ({"tools": [{"type": "function"}]}, "missing_required_parameter", "tools[0].function"),
    ({"tools": [{"type": "custom", "custom": {}}]}, "unsupported_parameter", "tools[0].type"),
    ({"tools": [{"type": "web_search"}]}, "unsupported_parameter", "tools[0].type"),
    ({"tools": [{"type": "spell"}]}, "invalid_value", "tools[0].type"),
    ({"tools": [tool("a b")]}, "invalid_value", "tools[0].function.name"),
    ({"tools": [tool("x" * 65)]}, "invalid_value", "tools[0].function.name"),
    ({"tools": [tool("f"), tool("f")]}, "invalid_value", "tools[1].function.name"),
    ({"tools": [tool("f", parameters="{}")]}, "invalid_type", "tools[0].function.parameters"),
    ({"tools": [tool("f")] * 129}, "invalid_value", "tools"),
    ({"tool_choice": "auto"}, "invalid_value", "tool_choice"),
    ({"tool_choice": "required"}, "invalid_value", "tool_choice"),
    ({"tool_choice": "f", "tools": [tool("f")]}, "invalid_value", "tool_choice"),
    ({"tool_choice": 1, "tools": [tool("f")]}, "invalid_type", "tool_choice"),
    ({"tool_choice": {"type": "function"}}, "missing_required_parameter", "tool_choice.function"),
    ({"tool_choice": named("g"), "tools": [tool("f")]}, "invalid_value", "tool_choice"),
    (
        {"tool_choice": allowed("auto", "g"), "tools": [tool("f")]},
        "invalid_value",
        "tool_choice.allowed_tools.tools",
    ),
    ({"parallel_tool_calls": "no"}, "invalid_type", "parallel_tool_calls"),
    ({"functions": [{}]}, "missing_required_parameter", "functions[0].name"),
    ({"function_call": {"name": "f"}}, "invalid_value", "function_call"),
    ({"functions": []}, "invalid_value", "functions"),
    ({"functions": [{"name": "f"}], "tools": [tool("g")]}, "invalid_value", "functions"),
    ({"functions": [{"name": "f"}, {"name": "f"}]}, "invalid_value", "functions[1].name"),
    ({"functions": [{"name": "f"}], "function_call": {"name": "g"}}, "invalid_value", "function_call"),
    ({"reasoning_effort": "enormous"}, "invalid_value", "reasoning_effort"),
    ({"top_logprobs": 2}, "invalid_value", "top_logprobs"),
    ({"top_logprobs": 21, "logprobs": True}, "invalid_value", "top_logprobs"),
    ({"logprobs": 3}, "invalid_type", "logprobs"),
    ({"logit_bias": {"5": "1"}}, "invalid_type", "logit_bias.5"),
    ({"logit_bias": {"5": 101}}, "invalid_value", "logit_bias.5"),
    ({"logit_bias": {"five": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": {"-5": 1}}, "invalid_value", "logit_bias"),
    ({"logit_bias": [5]}, "invalid_type", "logit_bias"),
    ({"frequency_penalty": 2.1}, "invalid_value", "frequency_penalty"),
    ({"presence_penalty": 3}, "invalid_value", "presence_penalty"),
    ({"repetition_penalty": 0}, "invalid_value", "repetition_penalty"),
    ({"bad_words": "x"}, "invalid_type", "bad_words"),
    ({"bad_words": [""]}, "invalid_value", "bad_words[0]"),
    ({"allowed_token_ids": []}, "invalid_value", "allowed_token_ids"),
    ({"allowed_token_ids": [-1]}, "invalid_value", "allowed_token_ids[0]"),
    ({"truncate_prompt_tokens": -2}, "invalid_value", "truncate_prompt_tokens"),
    ({"chat_template_kwargs": {"tools": []}}, "invalid_value", "chat_template_kwargs"),
    ({"chat_template_kwargs": {"a b": 1}}, "invalid_value", "chat_template_kwargs"),
    ({"priority": 1001}, "invalid_value", "priority"),
    ({"priority": -1}, "invalid_value", "priority"),
    ({"truncate_prompt_tokens": 0}, "invalid_value", "truncate_prompt_tokens"),
    ({"cache_salt": ""}, "invalid_value", "cache_salt"),
    ({"prompt_logprobs": 21}, "invalid_value", "prompt_logprobs"),
    ({"prompt_logprobs": 0, "stream": True}, "invalid_value", "prompt_logprobs"),
    ({"best_of": 1, "n": 2}, "invalid_value", "best_of"),
    ({"best_of": 2, "stream": True}, "invalid_value", "best_of"),
    ({"return_token_ids": 1}, "invalid_type", "return_token_ids"),
    ({"add_special_tokens": True}, "unsupported_parameter", "add_special_tokens"),
    ({"continue_final_message": True}, "invalid_value", "continue_final_message"),
    ({"chat_template": "{{ x }}"}, "unsupported_parameter", "chat_template"),
    ({"response_format": {"type": "poem"}}, "invalid_value", "response_format.type"),
    (
        {"response_format": {"type": "grammar", "grammar": ""}},
        "unsupported_parameter",
        "response_format.type",
    ),
    ({"response_format": {}}, "missing_required_parameter", "response_format.type"),
    (
        {"response_format": {"type": "json_schema"}},
        "missing_required_parameter",
        "response_format.json_schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a"}}},
        "missing_required_parameter",
        "response_format.json_schema.schema",
    ),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": []}}},
        "invalid_type",
        "response_format.json_schema.schema",
    ),
    ({"response_format": JSON_MODE, "guided_regex": "a"}, "invalid_value", "guided_regex"),
    ({"structured_outputs": {}}, "invalid_value", "structured_outputs"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "invalid_value", "structured_outputs"),
    ({"structured_outputs": {"json": "["}}, "invalid_value", "structured_outputs.json"),
    ({"structured_outputs": {"json": "[]"}}, "invalid_value", "structured_outputs.json"),
    ({"structured_outputs": {"json": 3}}, "invalid_type", "structured_outputs.json"),
    ({"structured_outputs": {"choice": []}}, "invalid_value", "structured_outputs.choice"),
    (
        {"structured_outputs": {"regex": "a", "whitespace_pattern": " "}},
        "unsupported_parameter",
        "structured_outputs.whitespace_pattern",
    ),
    ({"guided_json": "nothing"}, "invalid_value", "guided_json"),
    ({"guided_choice": "a"}, "invalid_type", "guided_choice"),
    ({"guided_whitespace_pattern": " "}, "unsupported_parameter", "guided_whitespace_pattern"),
    ({"response_format": "json"}, "invalid_type", "response_format"),
    ({"modalities": ["text", "audio"]}, "unsupported_parameter", "modalities"),
    ({"audio": {"voice": "x"}}, "unsupported_parameter", "audio"),
    ({"web_search_options": {}}, "unsupported_parameter", "web_search_options"),
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
    "functions": None,
    "function_call": "none",
    "best_of": 1,
    "echo": False,
    "prompt_logprobs": None,
    "add_generation_prompt": True,
    "continue_final_message": False,
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
    "web_search_options": None,
    "repetition_penalty": None,
    "skip_special_tokens": True,
    "include_stop_str_in_output": False,
    "parallel_tool_calls": True,
    "priority": 0,
    "bad_words": [],
    "guided_json": None,
    "structured_outputs": None,
    "chat_template_kwargs": {},
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
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        presence_penalty=-2,
        frequency_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias={"0": -100, "50": 1.5},
        bad_words=["no"],
        allowed_token_ids=[0, 50],
        n=3,
        logprobs=True,
        top_logprobs=5,
        truncate_prompt_tokens=-1,
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
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        presence_penalty=-2.0,
        frequency_penalty=0.5,
        repetition_penalty=1.1,
        logit_bias={0: -100.0, 50: 1.5},
        bad_words=("no",),
        allowed_token_ids=(0, 50),
        n=3,
        logprobs=5,
        truncate_prompt_tokens=-1,
    )


def test_logprobs_alone_asks_for_the_chosen_token() -> None:
    assert read(logprobs=True).chat.sampling.logprobs == 0
    assert read(logprobs=False).chat.sampling.logprobs is None


SCHEMA = {"type": "object", "properties": {"b": {"enum": [None, "é"]}, "a": {"const": 1.5}}}
SCHEMA_TEXT = '{"type":"object","properties":{"b":{"enum":[null,"é"]},"a":{"const":1.5}}}'


@pytest.mark.parametrize(
    ("asked", "kind", "text", "param"),
    [
        ({"response_format": JSON_MODE}, "json_object", "", "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
            "json_schema",
            SCHEMA_TEXT,
            "response_format",
        ),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", SCHEMA_TEXT, "structured_outputs.json"),
        (
            {"structured_outputs": {"json": SCHEMA_TEXT}},
            "json_schema",
            SCHEMA_TEXT,
            "structured_outputs.json",
        ),
        ({"structured_outputs": {"json": {}}}, "json_schema", "{}", "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True}}, "json_object", "", "structured_outputs.json_object"),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+", "structured_outputs.regex"),
        (
            {"structured_outputs": {"grammar": "root ::= x"}},
            "grammar",
            "root ::= x",
            "structured_outputs.grammar",
        ),
        ({"guided_json": SCHEMA}, "json_schema", SCHEMA_TEXT, "guided_json"),
        ({"guided_regex": "a+"}, "regex", "a+", "guided_regex"),
        ({"guided_grammar": "root ::= x"}, "grammar", "root ::= x", "guided_grammar"),
    ],
)
def test_every_way_to_ask_for_a_form_is_one_thing(
    asked: dict[str, Any], kind: str, text: str, param: str
) -> None:
    form = read(**asked).chat.sampling.structured
    assert form is not None
    assert (form.kind, form.text, form.choices, form.param) == (kind, text, (), param)


def test_choices_keep_their_order() -> None:
    for asked in ({"structured_outputs": {"choice": ["b", "a"]}}, {"guided_choice": ["b", "a"]}):
        form = read(**asked).chat.sampling.structured
        assert form is not None
        assert (form.kind, form.choices) == ("choice", ("b", "a"))
    assert read(response_format={"type": "text"}).chat.sampling.structured is None


def test_tools_and_the_choice_among_them() -> None:
    tools = [tool("f", description="Does f.", parameters=SCHEMA, strict=True), tool("g")]
    chat = read(tools=tools).chat
    f = Tool(name="f", description="Does f.", parameters=SCHEMA_TEXT, strict=True)
    assert chat.tools == (f, Tool(name="g"))
    assert chat.tool_choice == ToolChoice(mode="auto")
    for choice, expected in (
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        (named("g"), ToolChoice(mode="required", name="g")),
    ):
        chat = read(tools=tools, tool_choice=choice).chat
        assert (len(chat.tools), chat.tool_choice) == (2, expected)
    assert read(tools=tools, parallel_tool_calls=False).chat.tool_choice.parallel is False


def test_allowed_tools_are_the_only_ones() -> None:
    chat = read(tools=[tool("f"), tool("g")], tool_choice=allowed("required", "g")).chat
    assert (chat.tools, chat.tool_choice) == ((Tool(name="g"),), ToolChoice(mode="required"))


def test_calls_and_their_results_travel_with_the_messages() -> None:
    chat = read(
        messages=[
            USER,
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"}]},
        ]
    ).chat
    _, asked, result = chat.messages
    assert asked == Message(
        role="assistant", parts=(), tool_calls=(ToolCall(call_id="c", name="f", arguments='{"a":1}'),)
    )
    assert result == Message(role="tool", parts=(Part(text="42", origin="tool"),), tool_call_id="c")


def test_in_a_stored_conversation_the_call_may_be_the_stored_one() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": "42"}
    assert read(messages=[result], conversation_id="Trip-1").chat.messages[0].tool_call_id == "c"


def test_template_variables_priority_and_salt() -> None:
    chat = read(chat_template_kwargs={"enable_thinking": False}, priority=5, cache_salt="s").chat
    assert (chat.template_variables, chat.priority, chat.cache_salt) == ('{"enable_thinking":false}', 5, "s")


def test_schemas_and_tools_count_as_text() -> None:
    assert refusal(limit=50, tools=[tool("f", description="x" * 50)]) == ("request_too_large", "tools")
    assert refusal(limit=50, guided_json={"enum": ["x" * 50]}) == ("request_too_large", "messages")


def test_what_is_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"not": deep}
    assert refusal(guided_json=deep) == ("invalid_value", "guided_json")


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
    assert question.ignored == ("?", "flux_capacitor", "store")


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


def test_with_chat_changes_nothing_else() -> None:
    question = read(seed=4)
    assert question.chat.use_cache is True
    assert question.with_chat(use_cache=False).chat == question.chat.model_copy(update={"use_cache": False})


def test_paths_leave_out_the_tags_of_unions() -> None:
    assert (
        param_path(("messages", 2, "«user»", "content", "«parts»", 0, "type"))
        == "messages[2].content[0].type"
    )


def test_a_whole_number_may_be_written_with_a_point_and_a_zero() -> None:
    """As JSON Schema has it; half a token is none, and what is no number stays as it is."""
    question = read(max_tokens=8.0, seed=1.0, stop=["1.0"], temperature=1.0)
    assert (question.chat.sampling.max_tokens, question.chat.sampling.seed) == (8, 1)
    assert question.chat.sampling.stop == ("1.0",)
    assert refusal(max_tokens=8.5) == ("invalid_type", "max_tokens")
    deep: Any = 1.0
    for _ in range(900):
        deep = [deep]
    assert refusal(max_tokens=8.5, tools=deep)[1] == "max_tokens"
