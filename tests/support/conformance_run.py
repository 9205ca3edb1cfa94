"""The conformance suite as a person runs it: its own process, its exit status and what it printed."""

from __future__ import annotations

import asyncio
import sys

from tests.support.restricted_nats import RestrictedNats, password_of


async def run_conformance(service: str, nats: RestrictedNats) -> tuple[int | None, str]:
    login = ("--user", "operator", "--password", password_of("operator"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "baton_contracts.conformance", service, "--nats", nats.url, *login,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(60):
        printed, _ = await process.communicate()
    return process.returncode, printed.decode()
