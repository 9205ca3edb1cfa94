"""What is told of tokens waits for what they spell, even where no text ever does."""

from __future__ import annotations

from typing import Any

from baton_contracts.frames import Data, PromptPiece, SpelledToken, TokenLogprob
from baton_output_guardrails.answer_filter import AnswerFilter, FilterRules
from baton_output_guardrails.deny import DenyRules, Phrase

RID = "0af7651916cd43dd8448eb211c80319c"
RULES = DenyRules([Phrase("secret plan"), Phrase("café")])


def answer() -> AnswerFilter:
    return AnswerFilter(FilterRules({}, RULES))


def data(text: str = "", **more: Any) -> Data:
    return Data(request_id=RID, sender="x", seq=0, text=text, **more)


def spelled(*texts: str | bytes) -> tuple[SpelledToken, ...]:
    return tuple(
        SpelledToken(
            token_id=len(text), token_bytes=tuple(text if isinstance(text, bytes) else text.encode())
        )
        for text in texts
    )


def rated(text: str) -> tuple[TokenLogprob, ...]:
    return (TokenLogprob(text=text, token_bytes=tuple(text.encode()), logprob=-1),)


def piece(start: int, *texts: str, scored: bool = False) -> PromptPiece:
    logprobs = tuple(rated(text)[0] if start + place else None for place, text in enumerate(texts))
    return PromptPiece(start=start, tokens=spelled(*texts), logprobs=logprobs if scored else None)


def test_ids_pass_with_their_text_and_wait_while_it_is_undecided() -> None:
    part = answer()
    assert part.push(data("Hi", tokens=spelled("Hi"))).tokens == spelled("Hi")
    assert part.push(data(" secret", tokens=spelled(" secret"))).tokens == ()
    assert part.push(data(" plum", tokens=spelled(" plum"))).tokens == spelled(" secret", " plum")


def test_tokens_whose_text_the_engine_holds_for_a_stop_string_are_judged_all_the_same() -> None:
    """stop=["secret plans"]: the engine tells the tokens and shows no text before it is decided."""
    for field in ("tokens", "logprobs"):
        part = answer()
        make = spelled if field == "tokens" else rated
        seen = [part.push(data("", **{field: make(text)})) for text in ("secret", " plan", ".")]
        assert part.blocked
        assert not any(passed.tokens or passed.logprobs for passed in seen)


def test_a_character_in_two_tokens_is_one_character_to_the_judge() -> None:
    part = answer()
    raw = "café".encode()
    assert part.push(data(tokens=spelled(raw[:-1]))).tokens == ()
    assert not part.push(data(tokens=spelled(raw[-1:], " "))).tokens
    assert part.blocked


def test_the_prompt_comes_in_pieces_and_its_held_end_with_the_answers_first_text() -> None:
    part = answer()
    assert part.push(data(prompt=piece(0, "One", " two", scored=True))).prompt == piece(
        0, "One", " two", scored=True
    )
    assert part.push(data(prompt=piece(2, " secret", scored=True))).prompt is None
    passed = part.push(data("!"))
    assert passed.text == "!"
    assert passed.prompt == piece(2, " secret", scored=True)


def test_held_pieces_are_joined_and_an_attempt_that_begins_anew_tells_nothing_twice() -> None:
    part = answer()
    assert part.push(data(prompt=piece(0, "a"))).prompt == piece(0, "a")
    assert part.push(data(prompt=piece(0, "a"))).prompt is None
    assert part.push(data(prompt=piece(1, " secret"))).prompt is None
    assert part.push(data(prompt=piece(2, " p"))).prompt is None
    assert part.finish().prompt == piece(1, " secret", " p")


def test_a_banned_phrase_in_the_prompts_tokens_ends_the_answer() -> None:
    part = answer()
    part.push(data(prompt=piece(0, "the secret", " plan")))
    passed = part.push(data("fine", tokens=spelled("fine")))
    assert part.blocked
    assert passed.prompt is None
    assert passed.tokens == ()


def test_what_is_held_at_the_end_goes_out_unless_it_is_banned() -> None:
    part = answer()
    part.push(data("a secret", tokens=spelled("a secret")))
    assert part.finish().tokens == spelled("a secret")
    banned = answer()
    banned.push(data("a", tokens=spelled("a secret plan")))
    assert banned.finish().tokens == ()
    assert banned.blocked
