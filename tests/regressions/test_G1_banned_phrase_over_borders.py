"""G1: a banned phrase over window borders; harmless words split by tokens."""

from __future__ import annotations

from itertools import combinations

from baton_contracts.frames import Data, End
from baton_output_guardrails.deny import DenyRules, Phrase
from baton_output_guardrails.stream_filter import StreamFilter
from tests.support.guard_bench import guard_bench
from tests.support.relay import eventually

RULES = DenyRules([Phrase("secret plan"), Phrase("plan b"), Phrase("as")])


def sent(*pieces: str) -> tuple[str, bool]:
    stream = StreamFilter({}, RULES)
    return "".join(map(stream.push, pieces)) + stream.flush(), stream.blocked


def test_not_one_byte_at_any_two_borders() -> None:
    text = "Here is the sec\u200bret \n plan, friend"
    for first, second in combinations(range(len(text) + 1), 2):
        assert sent(text[:first], text[first:second], text[second:]) == ("Here is the ", True)


def test_harmless_words_split_by_tokens_are_byte_equal() -> None:
    text = "Assume a class: secrets, planning, plan C, basket. ﬁne  ‘quotes’\r\n\t– ½ ² 😀"
    for first, second in combinations(range(len(text) + 1), 2):
        assert sent(text[:first], text[first:second], text[second:]) == (text, False)


async def test_the_client_gets_content_filter_and_the_engine_is_stopped() -> None:
    async with guard_bench() as bench:
        answer = await bench.open()
        stream = answer.attempt()
        await stream.send(answer.prologue())
        for piece in ("The s", "ecret", " pl"):
            await stream.send(answer.data(piece))
        await stream.send(answer.data("an is"))
        await eventually(lambda: bench.cancels != [])
        await stream.send(answer.end("cancelled"))
        frames = await answer.received()
    assert "".join(frame.text for frame in frames if isinstance(frame, Data)) == "The "
    assert isinstance(frames[-1], End)
    assert frames[-1].finish_reason == "content_filter"
