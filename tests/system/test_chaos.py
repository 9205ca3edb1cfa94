"""The short form of `make chaos`: two replicas, clients that leave, processes that are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import chaos


@pytest.mark.timeout(600)
def test_sixty_requests_under_fire(tmp_path: Path) -> None:
    report = chaos(tmp_path / "home", num_requests=60, at_once=6, seed=7)
    assert report.problems == [], report.summary
    assert sum(report.done.values()) > 0
    assert sum(one.heard.complete for one in report.asked) >= 15, report.summary
