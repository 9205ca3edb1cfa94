"""kill -9 of any process: while idle it comes back and the next question works; with a request in hand the
client hears of it, and nothing stays held."""

from __future__ import annotations

import signal
import time

import pytest

from tests.system.client import Heard, ask, background, endless, question
from tests.system.live_system import SERVICES, LiveSystem, eventually

EVERYTHING = (*SERVICES, "nats_server")
VERDICT_SECONDS = 10
NO_CACHE = {"cache-control": "no-cache"}
CARRIES_THE_ANSWER = ("llm_gateway", "engine_worker", "output_guardrails")
BESIDE_THE_ANSWER = tuple(sorted({*EVERYTHING} - {*CARRIES_THE_ANSWER, "edge_api"}))
HELD_BY: dict[str, str] = {
    "prompt_builder": "embedder",
    "input_guardrails": "llm_gateway",
    "llm_gateway": "inference_router",
    "inference_router": "engine_worker",
}
"""A stop holds a request for as long as the one it asks is frozen."""


def answers(system: LiveSystem) -> None:
    heard = ask(system, question("Say hello.", max_tokens=4), **NO_CACHE)
    assert heard.complete, heard


def nothing_left(system: LiveSystem, heard: Heard | None, *, outcomes: set[str]) -> None:
    """No seats, no blocks; the next question works; one row at most for each attempt."""
    system.wait_ready()
    system.wait_at_rest(seconds=30)
    answers(system)
    if heard and "x-request-id" in heard.headers:
        rows = system.usage(heard.request_id)
        keys = [(row["run_id"], row["attempt"]) for row in rows]
        assert len(set(keys)) == len(keys)
        assert {row["outcome"] for row in rows} <= outcomes


@pytest.mark.parametrize("service", EVERYTHING)
def test_idle_it_comes_back_and_the_next_question_works(system: LiveSystem, service: str) -> None:
    system.kill_and_wait(service)
    answers(system)


def killed_mid_stream(system: LiveSystem, service: str, **changes: object) -> tuple[Heard, float]:
    """What the client heard, and how long after the kill its request was over."""
    with background(system, endless(**changes), **NO_CACHE) as asked:
        asked.has_text()
        old = system.send(service, signal.SIGKILL)
        killed = time.monotonic()
        heard = asked.result(seconds=60)
        over = time.monotonic() - killed
    system.wait_back(service, old)
    return heard, over


@pytest.mark.parametrize("service", CARRIES_THE_ANSWER)
def test_killed_with_the_answer_in_hand_the_client_gets_a_typed_error(
    system: LiveSystem, service: str
) -> None:
    heard, over = killed_mid_stream(system, service)
    assert heard.status == 200
    assert heard.typed_error, heard
    assert heard.text
    assert not heard.done
    assert over < VERDICT_SECONDS
    assert service in heard.error["message"]  # type: ignore[index]
    nothing_left(system, heard, outcomes={"error", "cancelled"})


def test_killed_edge_takes_its_connections_along_and_the_engine_stops(system: LiveSystem) -> None:
    heard, over = killed_mid_stream(system, "edge_api")
    assert heard.broke
    assert not heard.done
    assert over < VERDICT_SECONDS
    nothing_left(system, heard, outcomes={"cancelled", "error"})


@pytest.mark.soak
@pytest.mark.parametrize("service", BESIDE_THE_ANSWER)
def test_killed_beside_the_answer_the_stream_goes_on_to_its_end(system: LiveSystem, service: str) -> None:
    heard, _ = killed_mid_stream(system, service, max_tokens=250)
    assert heard.complete, heard
    assert heard.usage["completion_tokens"] == 250  # type: ignore[index]
    nothing_left(system, heard, outcomes={"finished"})
    eventually(lambda: len(system.usage(heard.request_id)) == 1, "one row")
    assert system.conversation(heard.headers["x-conversation-id"])[0]["answer"] == heard.text


@pytest.mark.soak
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("service", HELD_BY)
def test_killed_before_the_first_byte_the_client_gets_an_http_error_or_the_answer(
    system: LiveSystem, service: str, stream: bool
) -> None:
    asked_for = question("Why a 503?", max_tokens=8, stream=stream, retrieval="auto")
    with (
        system.frozen(HELD_BY[service]),
        background(system, asked_for, **NO_CACHE) as asked,
    ):
        eventually(lambda: system.stats().get(service, {}).get("held"), f"{service} holds it")
        old = system.send(service, signal.SIGKILL)
        killed = time.monotonic()
        heard = asked.result(seconds=60)
        over = time.monotonic() - killed
    assert heard.complete or (heard.typed_error and heard.status >= 500), heard
    assert over < VERDICT_SECONDS
    system.wait_back(service, old)
    hello = question("Say hello.", max_tokens=4)
    eventually(lambda: ask(system, hello).complete, "an answer, once the frozen one is awake")
    nothing_left(system, heard, outcomes={"finished", "error", "cancelled"})


@pytest.mark.soak
@pytest.mark.parametrize("service", CARRIES_THE_ANSWER)
def test_killed_under_a_whole_answer_the_client_gets_an_http_error(system: LiveSystem, service: str) -> None:
    with background(system, endless(stream=False)) as asked:
        eventually(lambda: system.metric("vllm:num_requests_running") > 0, "it runs", seconds=30)
        old = system.send(service, signal.SIGKILL)
        killed = time.monotonic()
        heard = asked.result(seconds=60)
        over = time.monotonic() - killed
    assert heard.typed_error, heard
    assert heard.status in (502, 503)
    assert over < VERDICT_SECONDS
    system.wait_back(service, old)
    nothing_left(system, heard, outcomes={"error", "cancelled"})
