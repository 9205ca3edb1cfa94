"""A15, a provider's 429: its Retry-After is passed on, and a fallback is tried before that."""

from __future__ import annotations

from pathlib import Path

from tests.support.fake_provider import Turn, fake_provider
from tests.support.plain_gateway import catalog, plain_gateway


async def too_many(turn: Turn) -> None:
    await turn.refuse(429, {"message": "slow down", "code": "rate_limit_exceeded"}, Retry_After="30")


async def hello(turn: Turn) -> None:
    await turn.whole("Hello.")


async def test_the_providers_value_is_kept_and_it_is_asked_again(nats_url: str, tmp_path: Path) -> None:
    async with (
        fake_provider(too_many) as provider,
        plain_gateway(nats_url, tmp_path, catalog(("far", provider))) as plain,
    ):
        answers = [await plain.ask(stream=stream) for stream in (False, True, False, False)]
    assert {answer.status_code for answer in answers} == {429}
    assert {answer.headers["retry-after"] for answer in answers} == {"30"}
    assert {answer.json()["error"]["type"] for answer in answers} == {"rate_limit_error"}
    assert len(provider.asked) == 4


async def test_a_fallback_answers_at_once(nats_url: str, tmp_path: Path) -> None:
    async with fake_provider(too_many) as busy, fake_provider(hello) as free:
        text = catalog(("far", busy), ("near", free), more='[models.far]\nfallbacks = ["near"]')
        async with plain_gateway(nats_url, tmp_path, text) as plain:
            answer = await plain.ask()
    assert (answer.status_code, answer.headers["x-baton-model"]) == (200, "near")
    assert answer.json()["model"] == "near"
    assert (len(busy.asked), len(free.asked)) == (1, 1)
