"""Pages of other origins call the API from a browser where the setting names them, and nowhere else."""

from __future__ import annotations

import httpx

from tests.support.edge_process import running_edge

PAGE = "https://chat.example"
QUESTION = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
PREFLIGHT = {
    "origin": PAGE,
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


async def test_a_named_origin_may_ask_and_read_the_answer_and_its_headers(nats_url: str) -> None:
    async with (
        running_edge(nats_url, allowed_origins=(PAGE,)) as edge,
        httpx.AsyncClient(base_url=edge.url) as client,
    ):
        asked = await client.options("/v1/chat/completions", headers=PREFLIGHT)
        assert asked.status_code == 200
        assert asked.headers["access-control-allow-origin"] == PAGE
        assert asked.headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
        answer = await client.post(
            "/v1/chat/completions", json=QUESTION, headers=edge.headers | {"origin": PAGE}
        )
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-expose-headers"] == "*"
        refused = await client.post("/v1/chat/completions", json=QUESTION, headers={"origin": PAGE})
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, PAGE)
        other = await client.options(
            "/v1/chat/completions", headers=PREFLIGHT | {"origin": "https://x.example"}
        )
        assert other.status_code == 400
        assert "access-control-allow-origin" not in other.headers


async def test_without_the_setting_no_page_is_let_in(nats_url: str) -> None:
    async with running_edge(nats_url) as edge, httpx.AsyncClient(base_url=edge.url) as client:
        asked = await client.options("/v1/chat/completions", headers=PREFLIGHT)
        assert (asked.status_code, asked.headers["allow"]) == (405, "POST")
        answer = await client.post(
            "/v1/chat/completions", json=QUESTION, headers=edge.headers | {"origin": PAGE}
        )
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers
