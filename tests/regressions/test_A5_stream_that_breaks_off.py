"""A5, the edge's part: an answer that breaks off ends with an error event: no finish reason, no [DONE]."""

from __future__ import annotations

import json

import httpx

from baton_contracts.errors import ErrorBody
from baton_contracts.records import ConversationRecord
from tests.support.edge_process import QUESTION, Turn, running_edge


async def forty_of_sixty(turn: Turn) -> None:
    await turn.prologue()
    for number in range(40):
        await turn.data(f"{number} ")
    await turn.error(ErrorBody(code="upstream_error", message="The provider closed.", stop="llm_gateway"))


async def test_forty_tokens_then_an_error_event(nats_url: str) -> None:
    async with (
        running_edge(nats_url, forty_of_sixty) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=QUESTION | {"stream": True})
        spans = await edge.relay.spans()
        record = ConversationRecord.decode(edge.relay.records["conversation"][0])
    *chunks, last = [json.loads(event[6:]) for event in response.text.split("\n\n") if event]
    assert "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks) == "".join(
        f"{number} " for number in range(40)
    )
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)
    assert last["error"]["code"] == "upstream_error"
    assert (record.cut_short, record.finish_reason) == (True, None)
    stream = next(span for span in spans if span["name"] == "stream")
    assert (stream["status"], stream["attributes"]["chunks"]) == ("error", 40)
