from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from baton_engine import (
    ConfigError,
    ContextLengthExceeded,
    EngineConfig,
    EngineRequest,
    InvalidParameter,
    KVCapacityExceeded,
    QueueFull,
    RequestRejected,
    SamplingParams,
)
from baton_engine.admission import AdmissionLimits, WaitingRoom, build_request
from baton_engine.request import Request
from baton_engine.structured.compiler import GrammarCompiler
from tests.support.tiny_model import EOS, VOCAB_SIZE, ByteTokenizer

LIMITS = AdmissionLimits(
    vocab_size=VOCAB_SIZE,
    max_model_len=100,
    block_size=16,
    num_blocks=1_000,
    max_waiting_requests=3,
    max_waiting_tokens=50,
    end_token_ids=frozenset({EOS}),
)

GRAMMARS = GrammarCompiler(ByteTokenizer(), VOCAB_SIZE, LIMITS.end_token_ids)


def build(prompt: Sequence[int] | None = (1, 2), limits: AdmissionLimits = LIMITS, **more: Any) -> Request:
    sampling = SamplingParams(**more.pop("sampling", {}))
    asked = EngineRequest("r", prompt_token_ids=prompt, sampling=sampling, **more)
    return build_request(asked, limits, ByteTokenizer(), GRAMMARS)


def limits(**changes: int) -> AdmissionLimits:
    return AdmissionLimits(**{**LIMITS.__dict__, **changes})


def waiting(request_id: str, num_tokens: int = 1) -> Request:
    return Request(request_id, (1,) * num_tokens, SamplingParams(), max_tokens=1, seed=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_tokens", 0),
        ("max_tokens", -1),
        ("max_tokens", True),
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_p", 1.01),
        ("top_p", -0.01),
        ("min_p", 2),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_tokens", -1),
        ("seed", 2**63),
        ("stop", ("",)),
        ("stop", ("x",) * 65),
        ("stop_token_ids", ("7",)),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(InvalidParameter, match=field) as caught:
        SamplingParams(**{field: value})  # type: ignore[arg-type]
    assert (caught.value.param, caught.value.code) == (field, "invalid_parameter")


def test_min_tokens_over_max_tokens_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"min_tokens \(9\) is over max_tokens \(8\)"):
        SamplingParams(max_tokens=8, min_tokens=9)


def test_one_stop_string_may_stand_alone() -> None:
    assert SamplingParams(stop="end").stop == ("end",)  # type: ignore[arg-type]


def test_max_tokens_left_out_is_what_fits() -> None:
    assert build((1,) * 30).max_tokens == 70
    assert (
        build((1,) * 30, limits(num_blocks=3)).max_tokens == 19
    )  # 48 tokens in the pool, the last is not fed back
    assert build((1,) * 30, sampling={"max_tokens": 7}).max_tokens == 7


def test_the_pool_must_be_able_to_hold_it() -> None:
    two_blocks = limits(num_blocks=2)
    assert build((1,) * 20, two_blocks, sampling={"max_tokens": 13}).max_tokens == 13
    with pytest.raises(KVCapacityExceeded, match="needs 3 KV blocks, but the engine has 2"):
        build((1,) * 20, two_blocks, sampling={"max_tokens": 14})


def test_a_seed_is_drawn_once_where_none_is_given() -> None:
    assert build(sampling={"seed": -5}).seed == -5
    assert build().seed != build().seed


def test_ignore_eos_keeps_the_stop_ids() -> None:
    one = build(sampling={"ignore_eos": True, "stop_token_ids": (3,)})
    assert (one.end_token_ids, one.stop_token_ids) == (frozenset(), frozenset({3}))
    assert build().end_token_ids == {EOS}


def test_messages_go_through_the_template() -> None:
    one = build(None, messages=[{"role": "user", "content": "hi"}])
    assert ByteTokenizer().decode(one.prompt_token_ids) == "user: hi\nassistant: "


@pytest.mark.parametrize(
    "more", [{"prompt": None}, {"prompt": (1,), "messages": [{"role": "user", "content": "hi"}]}]
)
def test_either_a_prompt_or_messages(more: dict[str, Any]) -> None:
    with pytest.raises(InvalidParameter, match="either prompt token ids or messages"):
        build(**more)


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="request_id is empty"):
        build_request(EngineRequest("", prompt_token_ids=(1,)), LIMITS, ByteTokenizer(), GRAMMARS)


def test_the_waiting_room_is_bounded_in_requests() -> None:
    room = WaitingRoom(LIMITS)
    for name in "abc":
        room.enter(waiting(name))
    with pytest.raises(QueueFull) as caught:
        room.enter(waiting("d"))
    assert (caught.value.code, caught.value.waiting, caught.value.limit) == ("queue_full", 3, 3)
    room.scheduled("a")
    assert room.enter(waiting("d")).running == 1


def test_the_waiting_room_is_bounded_in_tokens_but_never_locks_out_a_lone_long_prompt() -> None:
    room = WaitingRoom(LIMITS)
    room.enter(waiting("long", 80))
    with pytest.raises(QueueFull, match=r"80 tokens are waiting already \(the limit is 50\)"):
        room.enter(waiting("b"))
    room.leave("long")
    room.enter(waiting("b", 30))
    with pytest.raises(QueueFull):
        room.enter(waiting("c", 21))
    room.enter(waiting("d", 20))
    assert (room.num_requests, room.num_tokens) == (2, 50)


def test_every_refusal_has_a_code_and_a_message() -> None:
    refused = ContextLengthExceeded(5, 6, 10)
    assert isinstance(refused, RequestRejected)
    assert refused.code == "context_length_exceeded"
    assert "10" in refused.message
    assert "11 (5 in the prompt, 6 for the answer)" in refused.message


def test_clients_know_an_overflow_by_its_words() -> None:
    """LiteLLM 1.110, pydantic-ai 2.68 and LangChain 1.7 look for these, in this case."""
    for refused in (ContextLengthExceeded(5, 6, 10), ContextLengthExceeded(12, 1, 10)):
        assert "This model's maximum context length is 10 tokens" in refused.message
        assert "prompt is too long" in refused.message
    assert "lower max_tokens" in ContextLengthExceeded(5, 6, 10).message
    assert "lower max_tokens" not in ContextLengthExceeded(12, 1, 10).message


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"dtype": "int3"}, "dtype is 'int3'"),
        ({"block_size": 0}, "block_size is 0"),
        ({"num_blocks": 0}, "num_blocks is 0"),
        (
            {"max_num_seqs": 64, "max_num_batched_tokens": 32},
            r"max_num_seqs \(64\) is over max_num_batched_tokens",
        ),
    ],
)
def test_a_configuration_that_can_not_work_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        EngineConfig(model="anywhere", **changes)  # type: ignore[arg-type]


def test_an_unknown_device_is_named() -> None:
    with pytest.raises(ConfigError, match="device is 'abacus'"):
        EngineConfig(model="anywhere", device="abacus").resolve_device()  # type: ignore[arg-type]
