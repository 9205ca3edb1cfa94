"""The conformance suite, as a person runs it, against each service of the running system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.system.live_system import SERVICES, LiveSystem


@pytest.mark.parametrize("service", SERVICES)
def test_it_fits(system: LiveSystem, service: str) -> None:
    operator = system.operator()
    done = subprocess.run(
        [sys.executable, "-m", "baton_contracts.conformance", service, "--nats", operator["nats_url"],
         "--user", operator["user"], "--password", operator["password"],
         "--url", system.url, "--key", system.key],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "misfit" not in done.stdout
    assert f"{service}: fits the contract" in done.stdout
