"""Fixtures of the relay's pipeline tests: a server with each service's own permissions, and a stage on it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import pytest

from baton_common.bus import Bus
from baton_common.memory_bus import MemoryBus
from tests.support.relay_stage import Stage, nats_stage
from tests.support.restricted_nats import RestrictedNats, restricted_nats


@pytest.fixture(scope="module")
def relay_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestrictedNats]:
    with restricted_nats(tmp_path_factory.mktemp("relay")) as nats:
        yield nats


@pytest.fixture
async def stage(relay_nats: RestrictedNats) -> AsyncGenerator[Stage, None]:
    async with nats_stage(relay_nats) as opened:
        yield opened


@pytest.fixture
async def memory_stage() -> AsyncGenerator[Stage, None]:
    """The same on the in-memory bus, where it does not matter how messages travel."""
    bus = MemoryBus()

    async def share(user: str) -> Bus:
        del user
        return bus

    async with Stage(share) as opened:
        yield opened
