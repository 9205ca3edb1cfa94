"""The OpenAPI document is true: schemathesis asks every operation for what it allows and what it doesn't, and
finds no 5xx, no undocumented status, header or body, and nothing wrong that is taken for right."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from baton_edge_api.openapi import document
from tests.support.api_stage import api_stage
from tests.support.nats_server import running_nats_server
from tests.support.schemathesis_run import run_schemathesis
from tests.support.whole_relay import KEY, WholeRelay


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[str]:
    with running_nats_server(tmp_path / "nats") as url:
        yield url


@pytest.fixture
async def stage(own_nats: str, tmp_path: Path) -> AsyncIterator[WholeRelay]:
    async with api_stage(own_nats, tmp_path) as relay:
        yield relay


async def _judge(stage: WholeRelay, folder: Path, *arguments: str) -> None:
    url = str(stage.client.base_url).rstrip("/")
    status, report = await run_schemathesis(url, KEY, folder, *arguments)
    print(report)
    assert status == 0, report
    num_operations = sum(map(len, document()["paths"].values()))
    assert f"Tested: {num_operations}" in report
    assert int(re.search(r"(\d+) generated", report)[1]) > num_operations * 3  # type: ignore[index]


async def test_a_few_of_everything(stage: WholeRelay, tmp_path: Path) -> None:
    await _judge(stage, tmp_path, "--phases", "fuzzing,stateful", "-n", "5", "--seed", "1")


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_much_of_everything(stage: WholeRelay, tmp_path: Path) -> None:
    await _judge(stage, tmp_path, "--phases", "examples,coverage,fuzzing,stateful", "-n", "100")
