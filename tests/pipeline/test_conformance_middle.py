"""The conformance suite against gateway, router and engine worker: alone, and beside real neighbours."""

from __future__ import annotations

import pytest

from tests.support.conformance_run import run_conformance
from tests.support.fake_engine import FakeEngine
from tests.support.relay_stage import Stage
from tests.support.restricted_nats import RestrictedNats
from tests.support.scripted_answer import Script


async def fits(service: str, nats: RestrictedNats) -> bool:
    status, printed = await run_conformance(service, nats)
    print(printed)
    return status == 0 and "misfit" not in printed


async def test_a_gateway_alone_fits_the_suite_plays_its_neighbours(
    stage: Stage, relay_nats: RestrictedNats
) -> None:
    await stage.gateway()
    assert await fits("llm_gateway", relay_nats)


async def test_a_gateway_beside_a_running_system_fits_each_time(
    stage: Stage, relay_nats: RestrictedNats
) -> None:
    await stage.guard()
    await stage.router()
    await stage.gateway()
    for _ in range(3):
        assert await fits("llm_gateway", relay_nats)


@pytest.mark.parametrize("service", ["engine_worker", "inference_router"])
async def test_the_engine_worker_and_the_router_fit(
    stage: Stage, relay_nats: RestrictedNats, service: str
) -> None:
    await stage.whole(FakeEngine(Script(context=4000)))
    assert await fits(service, relay_nats)
