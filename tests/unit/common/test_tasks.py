"""Work that nobody awaits: what failed is told, and a bus that is away is no fault."""

from __future__ import annotations

import pytest

from baton_common.errors import BusUnavailable
from baton_common.tasks import spawn
from tests.support.relay import eventually


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (BusUnavailable("reply"), "WARNING", "not sent: reply: not connected to the bus"),
        (ValueError("no"), "ERROR", "background work failed: ValueError: no"),
    ],
)
async def test_what_failed_is_told(
    error: Exception, level: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail() -> None:
        raise error

    spawn(fail())
    await eventually(lambda: bool(caplog.records))
    assert [(record.levelname, record.message) for record in caplog.records] == [(level, text)]
