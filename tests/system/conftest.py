"""One running system for all tests of this folder (of each test process), and the marks that they share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.whole_system import has_model
from tests.system.live_system import SMALL, LiveSystem

STOP_SECONDS = 15
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    absent = pytest.mark.skipif(
        not has_model(), reason=f"{SMALL} is not pulled (`baton models pull --defaults`)"
    )  # fmt: skip
    for item in items:
        if HERE in item.path.parents:
            for mark in (pytest.mark.system, pytest.mark.real_weights, absent):
                item.add_marker(mark)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    """Few seats, so that a test can make requests wait. float32: in bfloat16 the size of a batch shows in the
    last bits, and with them now and then in a greedy answer."""
    system = LiveSystem(
        tmp_path_factory.mktemp("system") / "home",
        "--no-large",
        BATON_ENGINE_MAX_SEQS="4",
        BATON_ENGINE_DTYPE="float32",
    )
    system.start()
    try:
        yield system
        assert system.stop() < STOP_SECONDS
    finally:
        system.kill()


@pytest.fixture
def system(running: LiveSystem) -> LiveSystem:
    """Ready and at rest, whatever the test before has done to it."""
    running.wait_ready()
    running.wait_at_rest(seconds=60)
    return running
