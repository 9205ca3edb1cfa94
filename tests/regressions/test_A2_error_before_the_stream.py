"""A2: a streamed request that can't begin is an HTTP error with a JSON body, not an event stream."""

from __future__ import annotations

import httpx

from baton_contracts.errors import ErrorBody
from tests.support.edge_process import QUESTION, Turn, running_edge


async def too_long(turn: Turn) -> None:
    text = "This model's context is 8192 tokens; the prompt has 9000."
    error = ErrorBody(code="context_length_exceeded", message=text, param="messages", stop="engine_worker")
    await turn.error(error)


async def test_a_prompt_over_the_context_is_400_json(nats_url: str) -> None:
    async with (
        running_edge(nats_url, too_long) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=QUESTION | {"stream": True})
    assert response.status_code == 400
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {
        "error": {
            "message": "This model's context is 8192 tokens; the prompt has 9000.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        }
    }
