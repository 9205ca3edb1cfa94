"""Whole turns go, oldest first; system messages and the last turn stay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from baton_contracts.prompt import Message
from baton_prompt_builder.trimming import estimate_tokens, split_turns, trim


def _message(role: str, text: str) -> Message:
    return Message.model_validate({"role": role, "parts": [{"text": text}]})


def _texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


CHAT = [
    _message("system", "s" * 10),
    _message("user", "u1" * 10),
    _message("assistant", "a1" * 10),
    _message("user", "u2" * 10),
    _message("assistant", "a2" * 10),
    _message("user", "u3" * 10),
]
"""Costs at one character a token: 18, then 28 each: 158."""


def test_tokens_are_estimated_from_characters_and_messages() -> None:
    assert estimate_tokens(35, 1, 3.5) == 18
    assert estimate_tokens(36, 2, 3.5) == 27


def test_what_fits_is_not_touched() -> None:
    trimmed = trim(CHAT, 158, 1.0)
    assert trimmed.messages == tuple(CHAT)
    assert trimmed.num_turns == 0


def test_the_oldest_turn_goes_first_and_only_as_many_as_needed() -> None:
    trimmed = trim(CHAT, 157, 1.0)
    assert _texts(trimmed.messages) == ["s" * 10, "u2" * 10, "a2" * 10, "u3" * 10]
    assert trimmed.num_turns == 1
    assert trim(CHAT, 101, 1.0).num_turns == 2


def test_system_and_last_question_stay_however_small_the_budget() -> None:
    trimmed = trim(CHAT, 1, 1.0)
    assert _texts(trimmed.messages) == ["s" * 10, "u3" * 10]
    assert trimmed.num_turns == 2


def test_documents_to_come_count_too() -> None:
    assert trim(CHAT, 158, 1.0, extra_characters=1).num_turns == 1


def test_a_system_message_inside_the_conversation_stays_when_its_turn_goes() -> None:
    chat = [*CHAT[:3], _message("developer", "keep"), *CHAT[3:]]
    assert _texts(trim(chat, 1, 1.0).messages) == ["s" * 10, "keep", "u3" * 10]


def test_turns_begin_at_user_messages() -> None:
    chat = [_message("assistant", "hello"), *CHAT[1:4], _message("user", "again")]
    assert [[message.role for message in turn] for turn in split_turns(chat)] == [
        ["assistant"],
        ["user", "assistant"],
        ["user"],
        ["user"],
    ]


ROLES = st.sampled_from(["system", "user", "assistant", "tool"])


@given(st.lists(st.tuples(ROLES, st.text(max_size=50)), min_size=1, max_size=20), st.integers(1, 400))
def test_a_turn_is_kept_whole_or_dropped_whole(chat: list[tuple[str, str]], budget: int) -> None:
    messages = [_message(role, text) for role, text in chat]
    trimmed = trim(messages, budget, 1.0)
    kept = {id(message) for message in trimmed.messages}
    *older, last = split_turns(messages)
    assert all(id(message) in kept for message in last)
    for turn in older:
        verdicts = {id(message) in kept for message in turn if message.role != "system"}
        assert len(verdicts) <= 1
    assert all(id(message) in kept for message in messages if message.role == "system")
