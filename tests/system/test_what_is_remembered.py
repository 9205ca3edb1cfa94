"""Read your own writes: a conversation goes on, a document is cited; what was masked is restored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats

from tests.system.client import ask, question
from tests.system.live_system import LiveSystem

ADDRESS = "anna.berg@example.org"
NO_CACHE = {"cache-control": "no-cache"}


@contextmanager
def overheard(system: LiveSystem, *subjects: str) -> Iterator[list[tuple[str, bytes]]]:
    """What passes over the bus meanwhile, as its operator may see it."""
    heard: list[tuple[str, bytes]] = []
    listening, enough = threading.Event(), threading.Event()

    async def listen() -> None:
        operator = system.operator()
        client = await nats.connect(
            operator["nats_url"], user=operator["user"], password=operator["password"]
        )

        async def note(message: nats.aio.msg.Msg) -> None:
            heard.append((message.subject, message.data))

        for subject in subjects:
            await client.subscribe(subject, cb=note)
        await client.flush()
        await client.flush()
        listening.set()
        await asyncio.to_thread(enough.wait)
        await client.flush()
        await client.close()

    thread = threading.Thread(target=asyncio.run, args=(listen(),))
    thread.start()
    assert listening.wait(10)
    try:
        yield heard
    finally:
        enough.set()
        thread.join(10)


def test_a_conversation_goes_on_right_after_its_last_byte(system: LiveSystem) -> None:
    first = ask(system, question("My dog is called Bello. Say hello to my dog.", max_tokens=24), **NO_CACHE)
    assert first.complete
    conversation_id = first.headers["x-conversation-id"]
    again = question("What is my dog called?", max_tokens=24, conversation_id=conversation_id)
    second = ask(system, again, **NO_CACHE)
    assert second.complete
    assert second.headers["x-conversation-id"] == conversation_id
    assert second.usage["prompt_tokens"] > first.usage["prompt_tokens"] + 24  # type: ignore[index]
    [history] = [s for s in system.trace(second.request_id)["spans"] if s["name"] == "history"]
    assert history["attributes"]["num_messages"] == 2
    assert "Bello" in second.text
    turns = system.conversation(conversation_id)
    assert [turn["answer"] for turn in turns] == [first.text, second.text]
    assert [turn["cut_short"] for turn in turns] == [False, False]


def test_personal_data_is_restored_and_the_engine_never_sees_it(system: LiveSystem) -> None:
    shown = [{"role": "user", "content": "Repeat: red apple"}, {"role": "assistant", "content": "red apple"}]
    last = {"role": "user", "content": f"Repeat: write to {ADDRESS} today"}
    asked = question(messages=[*shown, last], max_tokens=30)
    with overheard(system, "baton.v1.>") as bus:
        heard = ask(system, asked, **NO_CACHE)
        trace = system.trace(heard.request_id)
    assert heard.complete
    assert heard.text == f"write to {ADDRESS} today"
    knows = {subject.split(".")[2] for subject, payload in bus if ADDRESS.encode() in payload}
    assert knows == {"prompt", "guard", "reply", "after"}
    assert not [
        subject for subject, payload in bus if ADDRESS.encode() in payload and ".guard.out." in subject
    ]
    reached = {subject.split(".")[2] for subject, _ in bus}
    assert {"gateway", "engine", "frames", "route", "trace"} <= reached
    assert ADDRESS not in str(trace)
    assert ADDRESS not in system.log
    [turn] = system.conversation(heard.headers["x-conversation-id"])
    assert ADDRESS in turn["answer"]


def test_a_document_that_was_just_ingested_is_cited(system: LiveSystem, tmp_path: Path) -> None:
    document = tmp_path / "zorbulator.md"
    document.write_text(
        "# The Zorbulator\n\nThe zorbulator of building seven is serviced on Thursdays by Mira Holm.\n"
        "Its spare key hangs behind the blue door.\n"
    )
    done = system.cli("ingest", str(document))
    assert done.returncode == 0, done.stderr
    assert "zorbulator.md" in done.stdout
    about = question("Who services the zorbulator of building seven?", max_tokens=60, retrieval="auto")
    heard = ask(system, about, **NO_CACHE)
    assert heard.complete
    assert "zorbulator.md" in heard.citations[0]
    assert "[1]" in heard.text
    assert "Mira Holm" in heard.text
    again = system.cli("ingest", str(document))
    assert "unchanged" in again.stdout
