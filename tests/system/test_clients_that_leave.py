"""A client that closes its connection: at any moment, the blocks are free at once and the books say why."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from tests.system.client import PATH, Background, Heard, Leave, ask, endless, long_prompt, question
from tests.system.live_system import LiveSystem, eventually

SEATS = 4
FREE_SECONDS = 5
"""A step, a heartbeat and a look; the rest is for a busy machine."""

LONG_STEP_SECONDS = 30
"""A step over 512 tokens of a prompt, in float32 with one thread, beside other tests; a cancel waits."""


def leave(heard: Heard) -> None:
    """An error is heard to its end: the test's failure shows it."""
    if heard.status == 200:
        raise Leave


@contextmanager
def plain_caller(system: LiveSystem, body: dict[str, Any], request_id: str) -> Iterator[None]:
    """A connection that has sent its request and reads nothing; closed at the end."""
    payload = json.dumps(body).encode()
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {system.key}\r\n"
        f"x-request-id: {request_id}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(payload)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", system.port), timeout=10) as connection:
        connection.sendall(head.encode() + payload)
        yield


def freed(system: LiveSystem, *, running: int = 0, seconds: float = FREE_SECONDS) -> None:
    def free() -> bool:
        blocks = system.metric("baton:kv_blocks_held")
        return system.metric("vllm:num_requests_running") == running and (running > 0 or blocks == 0)

    eventually(free, f"{running} running, their blocks alone held", seconds=seconds)


def engine_span(system: LiveSystem, request_id: str) -> dict[str, Any] | None:
    """Its attributes. Other stops may report before."""
    spans = system.trace(request_id, status="cancelled")["spans"]
    return next(
        (s["attributes"] for s in spans if s["service"] == "engine_worker" and s["name"] == "handle"), None
    )


def told(system: LiveSystem, request_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The attributes of the engine's own span, and the one ledger row."""
    engine = eventually(lambda: engine_span(system, request_id), "the engine's own span")
    [row] = eventually(lambda: system.usage(request_id), "a ledger row")
    assert row["outcome"] == "cancelled"
    assert engine["cancelled"] == "client_disconnected"
    return engine, row


def assert_all_its_blocks(engine: dict[str, Any]) -> None:
    """Of 16 tokens each; the step in which the cancel came may have had the next one already."""
    num_tokens = engine["prompt_tokens"] + engine["completion_tokens"]
    assert num_tokens > 16
    assert math.ceil((num_tokens - 1) / 16) <= engine["blocks_freed"] <= math.ceil((num_tokens + 1) / 16)


def cut_short(system: LiveSystem, conversation_id: str) -> dict[str, Any]:
    [turn] = eventually(lambda: system.conversation(conversation_id), "the conversation is kept")
    assert turn["cut_short"] is True
    return turn


def test_in_the_middle_of_a_stream(system: LiveSystem) -> None:
    def leave_soon(heard: Heard) -> None:
        if len(heard.text) > 30:
            raise Leave

    heard = ask(system, endless(), on_text=leave_soon)
    freed(system)
    engine, row = told(system, heard.request_id)
    assert heard.left
    assert_all_its_blocks(engine)
    assert engine["kv_usage"] == 0
    assert row["usage"]["completion_tokens"] == engine["completion_tokens"] >= 5
    turn = cut_short(system, heard.headers["x-conversation-id"])
    assert turn["answer"].startswith(heard.text)
    system.wait_at_rest()


def test_while_its_prompt_is_read(system: LiveSystem) -> None:
    def leave_in_the_middle(heard: Heard) -> None:
        """The headers come with the acceptance; a cancel may overtake even the first step."""
        if heard.status == 200:
            eventually(lambda: system.metric("baton:kv_blocks_held") > 0, "the prompt is being read")
            raise Leave

    heard = ask(system, endless(long_prompt(), max_tokens=1000), on_head=leave_in_the_middle)
    assert heard.status == 200, heard.error
    freed(system, seconds=LONG_STEP_SECONDS)
    engine, row = told(system, heard.request_id)
    assert engine["blocks_freed"] > 0
    assert row["usage"]["completion_tokens"] == 0
    assert cut_short(system, heard.headers["x-conversation-id"])["answer"] == ""
    system.wait_at_rest()


def is_in_the_engine(system: LiveSystem, request_id: str) -> bool:
    """The router has reported: it does once a replica has accepted."""
    answer = system.get(f"/v1/traces/{request_id}")
    return answer.status_code == 200 and any(
        span["service"] == "inference_router" for span in answer.json()["spans"]
    )


def test_while_it_waits_for_a_seat(system: LiveSystem) -> None:
    with ThreadPoolExecutor(SEATS) as pool:
        seated = [Background(pool, system, endless(f"Story number {number}.")) for number in range(SEATS)]
        try:
            for one in seated:
                one.has_text()
            heard = ask(system, endless("One more."), on_head=leave)
            whole_id = "feedfacefeedfacefeedfacefeedface"
            with plain_caller(system, endless("And another.", stream=False), whole_id):
                eventually(lambda: is_in_the_engine(system, whole_id), "it waits for a seat")
            for request_id in (heard.request_id, whole_id):
                engine, row = told(system, request_id)
                assert engine["blocks_freed"] == 0
                assert row["usage"]["completion_tokens"] == 0
            eventually(
                lambda: system.metric("vllm:num_requests_waiting") == 0, "nobody waits", seconds=FREE_SECONDS
            )
            assert system.metric("vllm:num_requests_running") == SEATS  # nobody else was disturbed
        finally:  # a failure must not wait for streams that never end
            left = [one.leave() for one in seated]
    assert all(one.left for one in left)
    freed(system)
    system.wait_at_rest()


def test_under_a_whole_answer(system: LiveSystem) -> None:
    request_id = "0badcafe0badcafe0badcafe0badcafe"
    before = system.metric("baton:replica_generation_tokens_total")
    with plain_caller(system, endless(stream=False), request_id):
        eventually(
            lambda: system.metric("baton:replica_generation_tokens_total") > before + 3, "it is decoding"
        )  # fmt: skip
    freed(system)
    engine, row = told(system, request_id)
    assert_all_its_blocks(engine)
    assert row["usage"]["completion_tokens"] == engine["completion_tokens"] >= 3
    system.wait_at_rest()


def test_one_that_leaves_disturbs_no_other(system: LiveSystem) -> None:
    alone = ask(system, question("Count to ten.", max_tokens=40), **{"cache-control": "no-cache"})
    with ThreadPoolExecutor(1) as pool:
        beside = Background(
            pool, system, question("Count to ten.", max_tokens=40), **{"cache-control": "no-cache"}
        )  # fmt: skip
        for _ in range(3):
            ask(system, endless(), on_text=leave)
        heard = beside.result()
    assert heard.complete
    assert heard.text == alone.text


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_at_once_without_waiting_for_anything(system: LiveSystem, stream: bool) -> None:
    request_id = "5ca1ab1e5ca1ab1e5ca1ab1e5ca1ab1" + str(int(stream))
    with plain_caller(system, endless(stream=stream), request_id):
        pass
    system.wait_at_rest()
    freed(system)
    assert len(system.usage(request_id)) <= 1
