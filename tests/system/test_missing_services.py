"""A service that is not there, or frozen: a 503 that names it, soon; an answer where it can do without."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.whole_system import pulled_models
from tests.system.client import ERROR_KEYS, Heard, ask, question
from tests.system.live_system import SERVICES, SMALL, LiveSystem, eventually

NAMED_WITHIN_SECONDS = 0.1
FROZEN_WITHIN_SECONDS = 5.0
"""2 s for an acknowledgement (the engine's passes through the router), and a busy machine."""
IN_THEIR_ORDER = (
    "prompt_builder", "input_guardrails", "llm_gateway", "output_guardrails", "inference_router",
    "engine_worker",
)  # fmt: skip
NOT_NEEDED = ("embedder", "after_answer", "trace_console")
NO_CACHE = {"cache-control": "no-cache"}


def hello(system: LiveSystem, *, retrieval: str = "off") -> Heard:
    return ask(system, question("Say hello.", max_tokens=4, retrieval=retrieval), **NO_CACHE)


@contextmanager
def by_hand(system: LiveSystem, service: str) -> Iterator[None]:
    """A service started beside the supervisor, with the environment that was left for such a stand-in."""
    written = (system.home / "run" / "env" / f"{service}.env").read_text()
    own = dict(line.split("=", 1) for line in shlex.split(written))
    own |= (
        {"BATON_MODEL": SMALL, "BATON_MODEL_PATH": str(pulled_models() / SMALL)}
        if "engine" in service
        else {}
    )
    with Path(os.devnull).open("wb") as nowhere:
        process = subprocess.Popen(
            [sys.executable, "-m", f"baton_{service}"], env=system.environment | own, stdout=nowhere,
            stderr=nowhere,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0


def refused(system: LiveSystem) -> tuple[str, float]:
    """The message of the 503, and how long it took."""
    began = time.monotonic()
    answer = system.post(question(max_tokens=4))
    took = time.monotonic() - began
    if answer.status_code == 200:
        return "", took
    assert answer.status_code == 503, answer.text
    error = answer.json()["error"]
    assert set(error) == ERROR_KEYS
    assert error["type"] == "service_unavailable_error"
    assert int(answer.headers["retry-after"]) >= 1
    return error["message"], took


def test_started_one_by_one_each_503_names_the_first_that_is_missing(tmp_path: Path) -> None:
    system = LiveSystem(tmp_path / "home", "--only", "edge_api")
    system.start(until="Baton runs in part")
    names = {name: name for name in IN_THEIR_ORDER} | {"engine_worker": f"No replica of {SMALL} is ready"}
    missing = system.get("/readyz").json()["missing"]
    assert set(missing) == {*SERVICES} - {"edge_api"}
    try:
        with ExitStack() as started:
            for service in IN_THEIR_ORDER:
                name = names[service]
                eventually(lambda name=name: name in refused(system)[0], f"a 503 names {name}", seconds=60)
                assert min(refused(system)[1] for _ in range(5)) <= NAMED_WITHIN_SECONDS
                started.enter_context(by_hand(system, service))
            eventually(lambda: refused(system)[0] == "", "an answer", seconds=90)
            heard = hello(system, retrieval="auto")
            assert heard.complete
            assert set(system.get("/readyz").json()["missing"]) == {*NOT_NEEDED}
            trace = system.get(f"/v1/traces/{heard.request_id}")
            usage = system.get("/v1/usage", request_id=heard.request_id)
            for answer, service in ((trace, "trace_console"), (usage, "after_answer")):
                assert answer.status_code == 503
                assert service in answer.json()["error"]["message"]
        system.stop()
    finally:
        system.kill()


@pytest.mark.parametrize("service", IN_THEIR_ORDER)
def test_frozen_the_503_names_it_soon(system: LiveSystem, service: str) -> None:
    with system.frozen(service):
        message, took = refused(system)
        assert service in message or (service == "engine_worker" and "eplica" in message)
        assert took < FROZEN_WITHIN_SECONDS
    system.wait_ready()
    eventually(lambda: hello(system).complete, "an answer, once it is awake")
    system.wait_at_rest()


@pytest.mark.parametrize("service", NOT_NEEDED)
def test_frozen_beside_the_relay_the_answer_comes_without_it(system: LiveSystem, service: str) -> None:
    with system.frozen(service):
        heard = hello(system, retrieval="auto")
        assert heard.complete
        assert heard.seconds < 15
    system.wait_ready()
    assert [row["outcome"] for row in eventually(lambda: system.usage(heard.request_id), "its row")] == [
        "finished"
    ]
    assert system.trace(heard.request_id, status="ok", seconds=40)["summary"]["finish_reason"] == "length"


@pytest.mark.soak
def test_left_out_on_purpose(tmp_path: Path) -> None:
    system = LiveSystem(tmp_path / "home", "--no-large", "--without", "output_guardrails")
    system.start(until="Baton runs in part")
    try:
        eventually(
            lambda: system.get("/readyz").json()["missing"] == ["output_guardrails"], "it alone is missing"
        )
        assert "output_guardrails" in refused(system)[0]
        assert min(refused(system)[1] for _ in range(5)) <= NAMED_WITHIN_SECONDS
        system.stop()
    finally:
        system.kill()
