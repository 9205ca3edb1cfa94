"""A completion of several prompts is several requests: its id leads to all their rows; the books agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from baton_cli.reconcile.differences import differences
from baton_cli.reconcile.evidence import Evidence
from baton_common.bus import BusMessage
from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.records import UsageRecord
from baton_contracts.spans import SpanBatch
from tests.support.books import running_books
from tests.support.fake_engine import FakeEngine
from tests.support.nats_server import running_nats_server
from tests.support.relay import eventually
from tests.support.scripted_answer import Script
from tests.support.whole_relay import MODEL, whole_relay

RID = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "nats"
    folder.mkdir()
    with running_nats_server(folder) as url:
        yield url


async def test_the_rows_of_all_prompts_are_found_by_the_id_of_the_first(
    own_nats: str, tmp_path: Path
) -> None:
    watcher = await NatsBus.connect(own_nats, name="operator")
    traces: list[SpanBatch] = []

    def note(message: BusMessage) -> None:
        traces.append(SpanBatch.decode(message.payload))

    await watcher.subscribe(subjects.TRACE_ALL, note)
    engine = FakeEngine(Script(words=("one ", "two ", "three")))
    prompts = ["Long ago", "Far away", "In the end"]
    async with running_books(own_nats, tmp_path), whole_relay(own_nats, tmp_path, engine) as relay:
        body = {"model": MODEL, "prompt": prompts, "max_tokens": 9}
        answer = await relay.client.post("/v1/completions", json=body, headers={"x-request-id": RID})
        assert answer.status_code == 200, answer.text
        usage = answer.json()["usage"]
        await eventually(lambda: sum(one.spans[0].service == "edge_api" for one in traces) == 1)
        listed = (await relay.client.get("/v1/usage", params={"request_id": RID})).json()["data"]
    await watcher.close()
    rows = [UsageRecord.model_validate(row) for row in listed]
    assert [row.outcome for row in rows] == ["finished"] * 3
    assert rows[0].request_id == RID
    (edge,) = [batch for batch in traces if batch.spans[0].service == "edge_api"]
    (told,) = [span.attributes for span in edge.spans if "other_request_ids" in span.attributes]
    assert told["other_request_ids"] == tuple(row.request_id for row in rows[1:])
    for name in ("prompt_tokens", "completion_tokens"):
        assert sum(getattr(row.usage, name) for row in rows) == usage[name] == told[name] > 0
    found = Evidence(rows=rows)
    found.add_spans(edge)
    assert [client.completion_tokens for client in found.clients] == [usage["completion_tokens"]]
    assert differences(found, since=0.0) == []
    found.rows.pop()
    assert [one.kind for one in differences(found, since=0.0)] == ["lost row"]
