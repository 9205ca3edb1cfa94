from __future__ import annotations

from typing import Any

import pytest

from baton_common.clock import Clock
from baton_contracts.frames import ToolCallPiece, Usage
from baton_contracts.prompt import (
    ChatRequest,
    Chunk,
    Message,
    Part,
    Prompt,
    Sampling,
    StructuredOutput,
    Tool,
    ToolCall,
    ToolChoice,
)
from baton_llm_gateway.response_cache import (
    ENTRY_OVERHEAD_BYTES,
    CachedAnswer,
    ResponseCache,
    cache_key,
    may_be_cached,
)

PROMPT = Prompt(
    messages=(
        Message(role="system", parts=(Part(text="Be brief."),)),
        Message(role="user", parts=(Part(text="Who is "), Part(text="<PERSON_1>?"))),
    )
)

CALL = ToolCall(call_id="c", name="f", arguments="{}")
CHAT = ChatRequest(model="auto", messages=PROMPT.messages, sampling=Sampling(temperature=0))


def key(**changes: Any) -> str:
    values: dict[str, Any] = {
        "tenant_id": "acme",
        "model": "m",
        "prompt": PROMPT,
        "chat": Sampling(temperature=0),
        "policy_version": "1",
    }
    changed = values | changes
    if isinstance(sampling := changed["chat"], Sampling):
        changed["chat"] = CHAT.model_copy(update={"sampling": sampling})
    return cache_key(**changed)


def messages(*texts: tuple[Any, str]) -> Prompt:
    return Prompt(messages=tuple(Message(role=role, parts=(Part(text=text),)) for role, text in texts))


def test_the_same_question_has_the_same_key_however_its_parts_were_cut() -> None:
    joined = messages(("system", "Be brief."), ("user", "Who is <PERSON_1>?"))
    assert key() == key(prompt=joined)
    assert len(key()) == 64


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "other"},
        {"model": "m2"},
        {"policy_version": "2"},
        {"prompt": messages(("system", "Be brief."), ("user", "Who is <PERSON_2>?"))},
        {"prompt": messages(("developer", "Be brief."), ("user", "Who is <PERSON_1>?"))},
        {"prompt": messages(("system", "Be brief.Who is <PERSON_1>?"), ("user", ""))},
        {
            "prompt": PROMPT.model_copy(
                update={"chunks": (Chunk(chunk_id="c", citation=1, source="s", score=1),)}
            )
        },
        *(
            {"chat": Sampling(**({"temperature": 0} | different))}
            for different in (
                {"temperature": 0.1},
                {"top_p": 0.9},
                {"top_k": 5},
                {"min_p": 0.1},
                {"seed": 1},
                {"max_tokens": 5},
                {"min_tokens": 1},
                {"stop": ("a",)},
                {"stop": ("a", "b")},
                {"stop_token_ids": (3,)},
                {"ignore_eos": True},
                {"include_stop_str_in_output": True},
                {"skip_special_tokens": False},
                {"presence_penalty": 0.1},
                {"frequency_penalty": 0.1},
                {"repetition_penalty": 1.1},
                {"logit_bias": {5: 1.0}},
                {"bad_words": ("a",)},
                {"allowed_token_ids": (3,)},
                {"n": 2},
                {"logprobs": 0},
                {"prompt_logprobs": 0},
                {"truncate_prompt_tokens": 9},
                {"structured": StructuredOutput(kind="json_object", param="response_format")},
                {"structured": StructuredOutput(kind="choice", choices=("a",), param="guided_choice")},
            )
        ),
        *(
            {"chat": CHAT.model_copy(update=different)}
            for different in (
                {"cache_salt": "mine"},
                {"tool_choice": ToolChoice(mode="required")},
                {"tool_choice": ToolChoice(mode="required", name="f")},
                {"tool_choice": ToolChoice(parallel=False)},
            )
        ),
        *(
            {"prompt": PROMPT.model_copy(update=different)}
            for different in (
                {"tools": (Tool(name="f"),)},
                {"tools": (Tool(name="f", parameters="{}"),)},
                {"template_variables": '{"enable_thinking":false}'},
                {"messages": (*PROMPT.messages, Message(role="assistant", parts=(), tool_calls=(CALL,)))},
            )
        ),
    ],
    ids=str,
)
def test_whatever_could_change_the_answer_changes_the_key(change: dict[str, Any]) -> None:
    assert key(**change) != key()


def test_what_only_changes_when_it_comes_does_not_change_the_key() -> None:
    assert key(chat=CHAT.model_copy(update={"priority": 5, "stream": True})) == key()


@pytest.mark.parametrize(
    ("sampling", "cached"),
    [
        (Sampling(temperature=0), True),
        (Sampling(temperature=1, seed=7), True),
        (Sampling(seed=0), True),
        (Sampling(temperature=0.7), False),
        (Sampling(), False),
    ],
)
def test_only_what_repeats_itself_is_cached_unless_told_otherwise(sampling: Sampling, cached: bool) -> None:
    assert may_be_cached(sampling, sampled_too=False) is cached
    assert may_be_cached(sampling, sampled_too=True)


class Time:
    now = 0.0


def answer(size: int) -> CachedAnswer:
    return CachedAnswer("x" * size, "stop", Usage(prompt_tokens=3, completion_tokens=size))


def cache(room_for: int, time: type[Time] = Time) -> ResponseCache:
    """Room for that many answers of 100 bytes."""
    size = room_for * (100 + ENTRY_OVERHEAD_BYTES)
    return ResponseCache(Clock(monotonic=lambda: time.now), max_bytes=size, ttl_seconds=10)


def test_the_least_recently_used_goes_first() -> None:
    kept = cache(room_for=2)
    kept.put("a", answer(100))
    kept.put("b", answer(100))
    assert kept.get("a") is not None
    kept.put("c", answer(100))
    assert kept.get("b") is None
    assert kept.get("a") is not None
    assert kept.get("c") is not None
    assert kept.num_bytes == 2 * (100 + ENTRY_OVERHEAD_BYTES)


def test_one_larger_than_the_cache_is_not_kept_and_pushes_nothing_out() -> None:
    kept = cache(room_for=1)
    kept.put("a", answer(100))
    kept.put("b", answer(101))
    assert kept.get("b") is None
    assert kept.get("a") is not None


def test_the_same_key_again_is_counted_once() -> None:
    kept = cache(room_for=5)
    kept.put("a", answer(100))
    kept.put("a", answer(50))
    assert (len(kept), kept.num_bytes) == (1, 50 + ENTRY_OVERHEAD_BYTES)


def test_bytes_are_counted_not_characters() -> None:
    assert CachedAnswer("é😀", "stop", Usage()).num_bytes == 6 + ENTRY_OVERHEAD_BYTES


def test_an_old_one_is_forgotten() -> None:
    class Later(Time):
        pass

    kept = cache(room_for=2, time=Later)
    kept.put("a", answer(100))
    Later.now = 10.0
    assert kept.get("a") is not None
    Later.now = 10.1
    assert kept.get("a") is None
    assert kept.num_bytes == 0


def test_no_room_at_all_is_off() -> None:
    off = cache(room_for=0)
    off.put("a", answer(0))
    assert off.get("a") is None


def test_what_stands_beside_the_text_counts_towards_the_size() -> None:
    plain = CachedAnswer("abc", "stop", Usage())
    call = ToolCallPiece(index=0, call_id="c", name="f", arguments="{}", is_whole=True)
    thought = CachedAnswer("abc", "tool_calls", Usage(), "four", (call,))
    assert plain.num_bytes == ENTRY_OVERHEAD_BYTES + 3
    assert thought.num_bytes == plain.num_bytes + 4 + len(call.encode())
