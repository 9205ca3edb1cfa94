"""The whole round by openai-python's own client: upload, create, poll, fetch."""

from __future__ import annotations

import asyncio
import json

import httpx
import openai

from tests.support.batch_files import beating, jsonl, line, nats_url
from tests.support.edge_process import KEY, running_edge

__all__ = ["nats_url"]


async def test_the_round(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        beating(edge),
        openai.AsyncOpenAI(
            base_url=f"{edge.url}/v1", api_key=KEY, http_client=httpx.AsyncClient(trust_env=False)
        ) as sdk,
    ):
        content = jsonl(line("one"), line("two", temperature=9), line("three"))
        file = await sdk.files.create(file=("questions.jsonl", content), purpose="batch")
        assert (file.filename, file.bytes, file.purpose) == ("questions.jsonl", len(content), "batch")
        batch = await sdk.batches.create(
            input_file_id=file.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
            metadata={"run": "7"},
        )
        assert (batch.status, batch.metadata) == ("validating", {"run": "7"})
        async with asyncio.timeout(15):
            while batch.status not in ("completed", "failed"):
                batch = await sdk.batches.retrieve(batch.id)
        assert batch.status == "completed"
        assert batch.request_counts
        assert batch.request_counts.model_dump() == {"total": 3, "completed": 2, "failed": 1}
        assert batch.output_file_id
        assert batch.error_file_id
        rows = [json.loads(row) for row in (await sdk.files.content(batch.output_file_id)).text.splitlines()]
        assert sorted(row["custom_id"] for row in rows) == ["one", "three"]
        for row in rows:
            assert row["error"] is None
            assert row["response"]["status_code"] == 200
            assert row["response"]["body"]["choices"][0]["message"]["content"] == "Hello ☃!"
        (wrong,) = [
            json.loads(row) for row in (await sdk.files.content(batch.error_file_id)).text.splitlines()
        ]
        assert (wrong["custom_id"], wrong["response"]["status_code"]) == ("two", 400)
        assert wrong["response"]["body"]["error"]["param"] == "temperature"
        listed = [item.id async for item in sdk.batches.list()]
        assert batch.id in listed
        outputs = [item.id async for item in sdk.files.list(purpose="batch_output")]  # type: ignore[arg-type]
        assert set(outputs) == {batch.output_file_id, batch.error_file_id}
        assert (await sdk.files.delete(file.id)).deleted
        assert [turn.handoff.chat.priority for turn in edge.relay.turns] == [1000, 1000]
