"""A9: reasoning_effort, store and a made-up field: lenient answers and says so, strict refuses the last."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.support.edge_process import QUESTION, running_edge
from tests.support.fake_engine import FakeEngine
from tests.support.whole_relay import whole_relay

BODY = QUESTION | {"reasoning_effort": "low", "store": True, "flux_capacitor": 1.21}


async def test_lenient_works_and_names_what_it_ignored(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        for stream in (False, True):
            response = await client.post("/v1/chat/completions", json=BODY | {"stream": stream})
            assert response.status_code == 200
            ignored = response.headers["x-baton-ignored-parameters"]
            assert ignored == "flux_capacitor,store", "the model says what it can not use"
        plain = await client.post("/v1/chat/completions", json=QUESTION)
    assert "x-baton-ignored-parameters" not in plain.headers


async def test_a_model_that_can_not_choose_how_much_it_thinks_says_so(nats_url: str, tmp_path: Path) -> None:
    async with whole_relay(nats_url, tmp_path, FakeEngine()) as relay:
        fields = {"reasoning_effort": "low", "store": True, "retrieval": "off"}
        for stream in (False, True):
            response = await relay.ask(**fields, stream=stream)
            assert response.headers["x-baton-ignored-parameters"] == "reasoning_effort,store"
        assert "x-baton-ignored-parameters" not in (await relay.ask(retrieval="off")).headers


async def test_strict_refuses_what_nobody_knows(nats_url: str) -> None:
    async with (
        running_edge(nats_url, strict=True) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=BODY)
        assert response.status_code == 400
        assert (response.json()["error"]["code"], response.json()["error"]["param"]) == (
            "unknown_parameter",
            "flux_capacitor",
        )
        known = await client.post("/v1/chat/completions", json=QUESTION | {"store": True})
    assert known.status_code == 200


async def test_what_would_change_the_answer_is_refused_in_both_modes(nats_url: str) -> None:
    for strict in (False, True):
        async with (
            running_edge(nats_url, strict=strict) as edge,
            httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
        ):
            for field in (
                {"web_search_options": {}},
                {"use_beam_search": True},
                {"add_special_tokens": True},
            ):
                response = await client.post("/v1/chat/completions", json=QUESTION | field)
                error = response.json()["error"]
                assert (response.status_code, error["code"]) == (400, "unsupported_parameter")
                assert error["param"] in field
            assert edge.relay.turns == []


async def test_a_hostile_name_does_not_get_into_the_header(nats_url: str) -> None:
    async with (
        running_edge(nats_url) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers) as client,
    ):
        response = await client.post("/v1/chat/completions", json=QUESTION | {"a\r\nset-cookie: b": 1})
    assert response.status_code == 200
    assert response.headers["x-baton-ignored-parameters"] == "?"
    assert "set-cookie" not in response.headers
