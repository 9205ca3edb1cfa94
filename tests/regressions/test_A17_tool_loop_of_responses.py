"""A17 (litellm#37358, litellm#15740): a tool loop of three rounds through /v1/responses, settled twice.

Three ledger rows, one a model call, whatever is delivered again; each round saw the ones before it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from baton_common.bus import BusMessage
from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.queries import BooksQuery, BooksReply
from tests.support.books import running_books
from tests.support.fake_engine import FakeEngine
from tests.support.nats_server import running_nats_server
from tests.support.openai_responses import TOOLS, text_of, whole
from tests.support.relay import eventually
from tests.support.scripted_answer import Script
from tests.support.whole_relay import MODEL, whole_relay


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "nats"
    folder.mkdir()
    with running_nats_server(folder) as url:
        yield url


def call(number: int) -> tuple[str, ...]:
    return (
        '<tool_call>\n{"name": ',
        f'"add", "arguments": {{"a": {number}}}}}',
        "\n</tool_call>",
    )


async def test_three_rounds_are_three_rows_though_settled_twice(own_nats: str, tmp_path: Path) -> None:
    watcher = await NatsBus.connect(own_nats, name="operator")
    settled: list[BusMessage] = []
    await watcher.subscribe(f"{subjects.ROOT}.after.*.*", settled.append)
    engine = FakeEngine(Script(words=call(1)))
    rounds: list[dict[str, Any]] = []
    async with running_books(own_nats, tmp_path) as books, whole_relay(own_nats, tmp_path, engine) as relay:
        asked: Any = "Add it up."
        for number in range(1, 4):
            words = ("All ", "done.") if number == 3 else call(number)
            engine.script = replace(engine.script, words=words)
            previous = rounds[-1]["id"] if rounds else None
            rounds.append(
                await whole(
                    relay.client, model=MODEL, input=asked, tools=TOOLS, previous_response_id=previous
                )
            )
            calls = [item for item in rounds[-1]["output"] if item["type"] == "function_call"]
            asked = [
                {"type": "function_call_output", "call_id": each["call_id"], "output": str(number)}
                for each in calls
            ]
        await eventually(lambda: len(settled) == 6)
        for message in settled[:6]:
            await watcher.publish_durable(message.subject, message.payload, message_id=new_request_id())
        question = BooksQuery(kind="usage", tenant_id="default")
        reply = await watcher.request(subjects.books(new_request_id()), question.encode(), timeout=5)
        rows = BooksReply.decode(reply).usage
    await watcher.close()
    assert [len(each["output"]) for each in rounds] == [1, 1, 1]
    assert text_of(rounds[2]) == "All done."
    assert {(row.request_id, row.attempt, row.outcome) for row in rows} == {
        (each["id"][5:37], 1, "finished") for each in rounds
    }
    assert len(rows) == 3
    assert sorted(row.usage.completion_tokens for row in rows) == [2, 3, 3]
    assert [each["usage"]["input_tokens"] for each in rounds] == sorted(
        each["usage"]["input_tokens"] for each in rounds
    ), "each round is shown those before it"
    connection = sqlite3.connect(books)
    stored = connection.execute("SELECT response_id FROM responses ORDER BY created_at").fetchall()
    connection.close()
    assert [response_id for (response_id,) in stored] == [each["id"] for each in rounds]
