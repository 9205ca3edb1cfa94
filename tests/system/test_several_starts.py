"""Two copies side by side, Ctrl-C, and a second start that finds what the first one kept."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.system.client import ask, background, endless, question
from tests.system.conftest import STOP_SECONDS
from tests.system.live_system import LiveSystem, eventually

NO_CACHE = {"cache-control": "no-cache"}


def test_a_second_copy_beside_the_first_keeps_its_state_over_a_restart(
    system: LiveSystem, tmp_path: Path
) -> None:
    other = LiveSystem(tmp_path / "home", "--no-large", BATON_ENGINE_DTYPE="float32")
    try:
        other.start()
        asked = question("My parrot is called Kiwi. Greet it.", max_tokens=16)
        ours, theirs = ask(system, asked, **NO_CACHE), ask(other, asked, **NO_CACHE)
        assert ours.complete
        assert theirs.complete
        assert ours.text == theirs.text
        assert system.usage(theirs.request_id) == []
        assert other.get(f"/v1/traces/{ours.request_id}").status_code == 404
        conversation_id = theirs.headers["x-conversation-id"]
        kept = other.trace(theirs.request_id, status="ok"), other.usage(theirs.request_id)

        refuses_a_third_start(other)
        assert stops_with_a_stream_in_hand(other) < STOP_SECONDS
        system.wait_ready()
        assert ask(system, question(max_tokens=4), **NO_CACHE).complete

        other.start()
        assert (other.trace(theirs.request_id), other.usage(theirs.request_id)) == kept
        assert [turn["answer"] for turn in other.conversation(conversation_id)] == [theirs.text]
        again = question("What is my parrot called?", max_tokens=16, conversation_id=conversation_id)
        heard = ask(other, again, **NO_CACHE)
        assert heard.complete
        assert len(other.conversation(conversation_id)) == 2
        assert other.stop(signal.SIGTERM) < STOP_SECONDS
    finally:
        other.kill()


@pytest.mark.soak
def test_a_killed_supervisor_leaves_nobody_behind_and_nothing_is_lost(tmp_path: Path) -> None:
    system = LiveSystem(tmp_path / "home", "--no-large")
    try:
        system.start()
        heard = ask(system, question("My parrot is called Kiwi. Greet it.", max_tokens=16), **NO_CACHE)
        with background(system, endless(), **NO_CACHE) as asked:
            asked.has_text()
            system.kill_and_see_all_gone()
            assert asked.result().broke
        system.start()
        assert [row["outcome"] for row in system.usage(heard.request_id)] == ["finished"]
        [turn] = system.conversation(heard.headers["x-conversation-id"])
        assert turn["answer"] == heard.text
        assert system.trace(heard.request_id)["summary"]["stops"] == list(range(1, 11))
        assert ask(system, question(max_tokens=4), **NO_CACHE).complete
        system.wait_at_rest()
        assert system.stop() < STOP_SECONDS
    finally:
        system.kill()


def refuses_a_third_start(other: LiveSystem) -> None:
    """The same home is taken, and the same port too: both are said before anything is started."""
    taken = other.cli("up", "--no-large")
    assert taken.returncode != 0
    assert str(other.home) in taken.stderr + taken.stdout
    elsewhere = LiveSystem(other.home.parent / "third", "--no-large", port=other.port)
    elsewhere.home.mkdir()
    (elsewhere.home / "models").symlink_to(other.home / "models")
    taken = elsewhere.cli("up", "--no-large")
    assert taken.returncode != 0
    assert f"Port {other.port} is in use" in taken.stderr + taken.stdout


def stops_with_a_stream_in_hand(other: LiveSystem) -> float:
    """The client of an endless answer is told; nothing outlives the Ctrl-C."""
    with background(other, endless()) as asked:
        asked.has_text()
        took = other.stop()
        heard = asked.result()
    assert heard.typed_error or heard.broke, heard
    assert heard.typed_error, f"the connection was cut without a word: {heard}"
    eventually(lambda: not other.is_running, "it is gone")
    return took
