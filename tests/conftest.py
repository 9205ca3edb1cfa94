"""Fixtures that every kind of test may use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.nats_server import running_nats_server

# A busy machine is no failure: properties are judged by their values, not by the clock.
hypothesis.settings.register_profile("baton", deadline=None)
hypothesis.settings.load_profile("baton")


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One real NATS server for the whole test process (one a worker under xdist)."""
    folder: Path = tmp_path_factory.mktemp("nats")
    with running_nats_server(folder) as url:
        yield url
