from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.frames import Data, TokenLogprob, ToolCallPiece
from baton_output_guardrails.answer_filter import AnswerFilter, FilterRules
from baton_output_guardrails.deny import DenyRules, Phrase

RID = "0af7651916cd43dd8448eb211c80319c"
RULES = DenyRules([Phrase("secret plan")])


def answer(values: dict[str, str] | None = None, **more: Any) -> AnswerFilter:
    return AnswerFilter(FilterRules(values or {}, RULES, **more))


def data(text: str = "", **more: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, text=text, **more)


def rated(text: str) -> tuple[TokenLogprob, ...]:
    return (TokenLogprob(text=text, token_bytes=tuple(text.encode()), logprob=-1),)


def words(logprobs: tuple[TokenLogprob, ...]) -> list[str]:
    return [token.text for token in logprobs]


def call(index: int = 0, arguments: str = "", **more: Any) -> ToolCallPiece:
    return ToolCallPiece(index=index, arguments=arguments, **more)


def test_a_phrase_that_is_spread_over_parts_is_none() -> None:
    part = answer()
    part.push(data(reasoning="the secret"))
    part.push(data(tool_calls=(call(0, '{"a": "plan", "b": "secret"', call_id="c", name="f"),)))
    part.push(data(" plan"))
    part.finish()
    assert not part.blocked


@pytest.mark.parametrize(
    "frame",
    [
        data("the secret plan."),
        data(reasoning="the secret plan."),
        data(tool_calls=(call(0, '{"a": "secret plan."', call_id="c", name="f"),)),
        data(tool_calls=(call(0, "", call_id="c", name="secret plan"),)),
    ],
)
def test_a_banned_phrase_ends_the_answer_in_whatever_part(frame: Data) -> None:
    part = answer()
    passed = part.push(frame)
    assert part.blocked
    everything = passed.text + passed.reasoning + "".join(piece.arguments for piece in passed.tool_calls)
    assert "secret" not in everything
    assert all(piece.name != "secret plan" for piece in passed.tool_calls)
    assert not part.push(data("more", logprobs=rated("more")))
    assert not part.finish()
    assert part.hits == ("phrase",)


def test_values_are_restored_in_every_part() -> None:
    part = answer({"<CITY_1>": "Oslo"})
    passed = part.push(
        data(
            "to <CITY_1>.",
            reasoning="<CITY_1>?",
            tool_calls=(call(0, '{"to": "<CITY_1>"}', call_id="c", name="go", is_whole=True),),
        )
    )
    assert (passed.text, passed.reasoning) == ("to Oslo.", "Oslo?")
    assert passed.tool_calls[0].arguments == '{"to": "Oslo"}'


def test_a_call_begins_at_once_and_its_held_arguments_follow() -> None:
    part = answer()
    first = part.push(data(tool_calls=(call(0, '{"a": "secret', call_id="c", name="f"),)))
    assert [(piece.name, piece.arguments) for piece in first.tool_calls] == [("f", '{"a": "')]
    second = part.push(data(tool_calls=(call(0, 's"}', is_whole=True),)))
    assert [(piece.name, piece.arguments) for piece in second.tool_calls] == [(None, 'secrets"}')]


def test_nothing_that_is_held_back_is_lost_at_the_end() -> None:
    part = answer({"<CITY_1>": "Oslo"})
    part.push(data("a secret", reasoning="<CITY", tool_calls=(call(1, '"secret', call_id="c", name="f"),)))
    passed = part.finish()
    assert (passed.text, passed.reasoning) == ("secret", "<CITY")
    assert passed.tool_calls == (call(1, "secret"),)


def test_logprobs_wait_for_the_text_of_their_tokens() -> None:
    part = answer()
    assert words(part.push(data("A ", logprobs=rated("A "))).logprobs) == ["A "]
    assert words(part.push(data("secret", logprobs=rated("secret"))).logprobs) == []
    assert words(part.push(data(logprobs=rated(""))).logprobs) == []
    assert words(part.push(data(" place", logprobs=rated(" place"))).logprobs) == ["secret", "", " place"]


def test_logprobs_wait_for_a_placeholder_too() -> None:
    part = answer({"<CITY_1>": "Oslo"})
    assert words(part.push(data("<CITY", logprobs=rated("<CITY"))).logprobs) == []
    assert words(part.push(data("_1> x", logprobs=rated("_1> x"))).logprobs) == ["<CITY", "_1> x"]


def test_logprobs_of_banned_text_never_come_out() -> None:
    part = answer()
    part.push(data("secret", logprobs=rated("secret")))
    passed = part.push(data(" plan.", logprobs=rated(" plan.")))
    assert part.blocked
    assert passed.logprobs == ()
    assert not part.finish()


def test_logprobs_of_text_that_was_harmless_after_all_come_at_the_end() -> None:
    part = answer()
    part.push(data("secret", logprobs=rated("secret")))
    passed = part.finish()
    assert (passed.text, words(passed.logprobs)) == ("secret", ["secret"])


def test_in_monitor_mode_hits_are_noted_and_nothing_is_held() -> None:
    part = answer(monitor=True)
    passed = part.push(data("the secret plan.", logprobs=rated("x")))
    assert (passed.text, words(passed.logprobs), part.hits) == ("the secret plan.", ["x"], ("phrase",))
