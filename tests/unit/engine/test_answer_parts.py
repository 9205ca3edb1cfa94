"""Thinking and tool calls through the whole step loop: one byte a token, a model that says given words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from baton_engine import EngineRequest, OutputFormat, RequestDelta, SamplingParams
from baton_engine.llm import _outputs
from baton_engine.request import Request
from tests.support.engine_driver import GREEDY, add, ask, drain, edit_logits
from tests.support.tiny_model import EOS, tiny_engine

ALL = OutputFormat(reasoning=True, tool_calls="hermes", tool_names=frozenset({"f"}))
TO_THE_END = replace(GREEDY, max_tokens=200, ignore_eos=False)
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def says(words: str) -> Any:
    spoken = [*words.encode(), EOS]

    def prefer(requests: Sequence[Request], logits: Tensor) -> None:
        for row, request in enumerate(requests):
            logits[row] = 0
            logits[row, spoken[min(request.num_answer_tokens, len(spoken) - 1)]] = 2

    return prefer


def answer(words: str, asked: EngineRequest) -> list[RequestDelta]:
    engine = tiny_engine()
    edit_logits(engine, says(words))
    add(engine, asked)
    return drain(engine)[asked.request_id]


def request(sampling: SamplingParams = TO_THE_END, **changes: Any) -> EngineRequest:
    return replace(ask("a", [1], sampling), output_format=ALL, **changes)


def test_the_parts_come_apart_and_the_finish_reason_tells_of_calls() -> None:
    deltas = answer(f"<think>Hm.</think>Look: {CALL}", request())
    [output] = _outputs(deltas)
    assert (output.reasoning, output.text) == ("Hm.", "Look:")
    [call] = output.tool_calls
    assert (call.index, call.name, call.arguments, call.is_whole) == (0, "f", '{"a": 1}', True)
    assert str(call.call_id).startswith("call_")
    assert output.finish_reason == "tool_calls"
    assert output.usage.reasoning_tokens == len(">Hm.</think>"), "from the token that completes the mark"
    assert output.usage.completion_tokens == len(f"<think>Hm.</think>Look: {CALL}") + 1


def test_arguments_stream_behind_their_start() -> None:
    seen = [call for delta in answer(CALL, request()) for call in delta.tool_calls]
    assert (seen[0].name, seen[0].arguments) == ("f", "{")
    assert all(call.name is None and call.call_id is None for call in seen[1:])
    assert "".join(call.arguments for call in seen) == '{"a": 1}'
    assert [call.is_whole for call in seen] == [False] * (len(seen) - 1) + [True]


def test_a_call_cut_by_the_token_limit_ends_with_length() -> None:
    [output] = _outputs(answer(CALL, request(replace(GREEDY, max_tokens=41))))
    assert output.finish_reason == "length"
    assert output.tool_calls[0].arguments == '{"a'
    assert not output.tool_calls[0].is_whole


def test_without_a_format_all_is_text() -> None:
    words = f"<think>Hm.</think>{CALL}"
    [output] = _outputs(answer(words, replace(request(), output_format=OutputFormat())))
    assert (output.text, output.reasoning, output.tool_calls) == (words, "", ())
    assert output.finish_reason == "stop"


def test_a_prompt_that_opens_the_thinking() -> None:
    prompt = list(b"assistant: <think>\n")
    [output] = _outputs(answer("Hm.</think>So.", request(prompt_token_ids=prompt)))
    assert (output.reasoning, output.text, output.usage.reasoning_tokens) == (
        "Hm.",
        "So.",
        len("Hm.</think>"),
    )


def test_a_stop_string_ends_the_answer_in_the_thinking_too() -> None:
    sampling = replace(TO_THE_END, stop=("END",))
    [output] = _outputs(answer("<think>Hm. END</think>So.", request(sampling)))
    assert (output.reasoning, output.text, output.finish_reason) == ("Hm.", "", "stop")


def test_what_is_held_back_at_the_end_is_flushed_as_text() -> None:
    [output] = _outputs(answer('So. <tool_call>{"name": "f", ', request()))
    assert output.text == 'So. <tool_call>{"name": "f", '
    assert output.finish_reason == "stop"


def test_a_resumed_answer_goes_on_inside_its_call_with_the_same_ids() -> None:
    whole = answer(CALL, request())
    sent = list(CALL.encode()[:44])
    rest = answer(CALL, request(resume_token_ids=sent))
    before = "".join(c.arguments for d in whole[:44] for c in d.tool_calls)
    after = [call for delta in rest for call in delta.tool_calls]
    assert before == '{"a": '
    assert "".join(call.arguments for call in after) == "1}"
    assert all(call.name is None for call in after)
    assert rest[-1].finish_reason == "tool_calls"


def test_the_answers_of_one_request_have_calls_with_ids_of_their_own() -> None:
    outputs = _outputs(answer(CALL, request(replace(TO_THE_END, temperature=1, seed=1, n=2))))
    ids = [call.call_id for output in outputs for call in output.tool_calls]
    assert len(set(ids)) == len(ids)


def test_one_call_ends_the_answer_where_no_more_are_wanted() -> None:
    one = replace(request(), output_format=replace(ALL, one_call=True))
    [output] = _outputs(answer(f"Look: {CALL}{CALL} Done.", one))
    assert [call.arguments for call in output.tool_calls] == ['{"a": 1}']
    assert (output.text, output.finish_reason) == ("Look:", "tool_calls")
    assert output.usage.completion_tokens <= len(f"Look: {CALL}")
    [two] = _outputs(answer(f"Look: {CALL}{CALL}", request()))
    assert len(two.tool_calls) == 2
    [none] = _outputs(answer("Nothing to call.", one))
    assert (none.text, none.finish_reason) == ("Nothing to call.", "stop")
