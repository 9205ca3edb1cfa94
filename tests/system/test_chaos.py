"""The short form of `make chaos`: two replicas, clients that leave, each of five processes killed once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.mischief import FIRST
from tests.chaos.run import chaos


@pytest.mark.timeout(600)
def test_forty_requests_under_fire(tmp_path: Path) -> None:
    report = chaos(tmp_path / "home", num_requests=40, at_once=4, seed=7)
    assert report.problems == [], report.summary
    assert {(deed.victim, deed.how) for deed in report.deeds} >= set(FIRST)
    assert report.ends["whole"] >= 15, report.summary
