"""A5, the edge's part: an answer that breaks off ends with an error event: no finish reason, no [DONE]."""

from __future__ import annotations

import json

import httpx

from baton_contracts.records import ConversationRecord
from tests.support.edge_process import QUESTION, running_edge
from tests.support.edge_scripts import FORTY, forty_of_sixty


async def test_forty_tokens_then_an_error_event(nats_url: str) -> None:
    async with (
        running_edge(nats_url, forty_of_sixty) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=QUESTION | {"stream": True})
        spans = await edge.relay.spans()
        record = ConversationRecord.decode(await edge.relay.record("conversation"))
    *chunks, last = [json.loads(event[6:]) for event in response.text.split("\n\n") if event]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == FORTY
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert last["error"]["code"] == "upstream_error"
    assert (record.cut_short, record.finish_reason) == (True, None)
    stream = next(span for span in spans if span["name"] == "stream")
    assert (stream["status"], stream["attributes"]["chunks"]) == ("error", 40)
