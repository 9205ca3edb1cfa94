"""The health check hears its own instance's lease on a real bus, and nothing else will do."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client

from baton_contracts import subjects
from baton_contracts.heartbeats import Lease, State
from tests.compose.docker_script import FOLDER, load_script
from tests.support.service_process import running_service

health = load_script("health")
INSTANCE = "edge_api-0011aabb"


@pytest.fixture
async def bus(nats_url: str) -> AsyncIterator[Client]:
    client = await nats.connect(nats_url)
    yield client
    await client.close()


async def check(nats_url: str, seconds: float, instance: str = INSTANCE) -> str:
    environment = {"BATON_NATS_URL": nats_url, "BATON_NATS_USER": "edge_api", "BATON_NATS_PASSWORD": "x"}
    return await asyncio.to_thread(health.lease_state, environment, instance, time.monotonic() + seconds)


async def beat(bus: Client, state: State, instance: str = INSTANCE) -> None:
    """Until cancelled, one round trip after the other."""
    lease = Lease(service="edge_api", instance=instance, state=state)
    while True:
        await bus.publish(subjects.lease(instance), lease.encode())
        await bus.flush()


@pytest.mark.parametrize("state", ["starting", "ready", "draining"])
async def test_it_tells_the_state_of_the_lease(bus: Client, nats_url: str, state: State) -> None:
    beating = asyncio.create_task(beat(bus, state))
    try:
        assert await check(nats_url, 10) == state
    finally:
        beating.cancel()


async def test_a_real_service_is_healthy_from_ready_to_its_end(nats_url: str, tmp_path: Path) -> None:
    file = tmp_path / "instance"
    environment = {"BATON_NATS_URL": nats_url, "BATON_HOME": str(tmp_path), "BATON_INSTANCE_FILE": str(file)}
    async with running_service("inference_router", environment) as service:
        instance = file.read_text()
        assert instance.startswith("inference_router-")
        assert await check(nats_url, 10, instance) == "ready"
        await service.kill()
        with pytest.raises((ValueError, OSError), match=r"no lease|timed out"):
            await check(nats_url, 1.2, instance)


async def test_another_instances_lease_is_none_of_ours(bus: Client, nats_url: str) -> None:
    beating = asyncio.create_task(beat(bus, "ready", instance="edge_api-ffffffff"))
    try:
        with pytest.raises((ValueError, OSError), match=r"no lease|timed out"):
            await check(nats_url, 0.3)
    finally:
        beating.cancel()


async def test_a_bus_that_is_gone_is_an_error(unused_tcp_port: int) -> None:
    with pytest.raises(OSError, match="refused"):
        await check(f"nats://127.0.0.1:{unused_tcp_port}", 1)


@pytest.mark.parametrize("state", ["starting", "gone"])
def test_a_process_that_takes_nothing_is_not_healthy(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "instance").write_text(INSTANCE)
    monkeypatch.setenv("BATON_INSTANCE_FILE", str(tmp_path / "instance"))
    monkeypatch.setattr(health, "own_environment", dict)
    monkeypatch.setattr(health, "lease_state", lambda *_: state)
    with pytest.raises(SystemExit, match=f"not healthy: {state}"):
        health.main()


def test_a_service_that_is_still_starting_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_INSTANCE_FILE", str(tmp_path / "instance"))
    monkeypatch.setattr(health, "own_environment", dict)
    with pytest.raises(SystemExit, match="the service is starting"):
        health.main()


def test_a_container_without_its_secrets_says_what_to_mount() -> None:
    environment = {"PATH": os.environ["PATH"], "BATON_SERVICE": "no_such_service"}
    done = subprocess.run(
        ["sh", str(FOLDER / "entrypoint.sh")], check=False, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2
    assert "/run/baton/env/no_such_service.env can't be read" in done.stderr
