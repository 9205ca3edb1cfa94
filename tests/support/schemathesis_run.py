"""Schemathesis, a process of its own, against a running edge: what it says of every operation."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
_CONFIG = Path(__file__).with_name("schemathesis.toml")


async def run_schemathesis(url: str, key: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit status and report; what it keeps lies in `folder`."""
    environment = os.environ | {
        "SCHEMATHESIS_HOOKS": "tests.support.schemathesis_hooks",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = ["--config-file", str(_CONFIG), "--no-color", "run", f"{url}/openapi.json"]
    options = [
        *("-H", f"Authorization: Bearer {key}"),
        *("--generation-database", "none", "--continue-on-failure", "--warnings", "off"),
        *("--request-timeout", "20", "--output-sanitize", "false"),
    ]
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("st")),
        *command,
        *options,
        *arguments,
        cwd=folder,
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        report, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, report.decode()
