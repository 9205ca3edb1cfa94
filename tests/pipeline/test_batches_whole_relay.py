"""A batch through all stops, started by a real worker's heartbeats: one answer and one ledger row a line."""

from __future__ import annotations

from pathlib import Path

from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.records import UsageRecord
from tests.support.batch_files import begun, jsonl, line, nats_url, reached, results
from tests.support.fake_engine import FakeEngine
from tests.support.relay import eventually
from tests.support.whole_relay import MODEL, whole_relay

__all__ = ["nats_url"]


async def test_lines_reach_the_engine_behind_all_others(nats_url: str, tmp_path: Path) -> None:
    engine = FakeEngine()
    rows: list[UsageRecord] = []
    watcher = await NatsBus.connect(nats_url, name="test")
    await watcher.subscribe(
        f"{subjects.ROOT}.after.usage.*", lambda message: rows.append(UsageRecord.decode(message.payload))
    )
    async with whole_relay(nats_url, tmp_path, engine) as relay:
        live = await relay.answer("what a person asks")
        content = jsonl(*(line(f"line-{number}", f"question {number}", model=MODEL) for number in range(3)))
        batch = await begun(relay.client, content)
        over = await reached(relay.client, batch["id"], "completed", "failed")
        assert over["request_counts"] == {"total": 3, "completed": 3, "failed": 0}
        found = await results(relay.client, over["output_file_id"])
        bodies = [item["response"]["body"] for item in found.values()]
        said = live["choices"][0]["message"]["content"]
        assert [body["choices"][0]["message"]["content"] for body in bodies] == [said] * 3
        asked = [request.priority for request in engine.submitted if request.request_id != "warm-up"]
        assert asked == [0, 1000, 1000, 1000]
        await eventually(lambda: len(rows) >= 4)
    await watcher.close()
    of_lines = {item["response"]["request_id"] for item in found.values()}
    keys = {(row.request_id, row.run_id, row.attempt) for row in rows}  # the ledger writes each key once
    assert sorted(request_id for request_id, _, _ in keys if request_id in of_lines) == sorted(of_lines)
    assert {row.tenant.tenant_id for row in rows} == {"default"}
