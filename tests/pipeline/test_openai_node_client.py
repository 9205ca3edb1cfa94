"""openai-node as it is: streams, responses, embeddings, error types, comments in a silence (A7).

Skipped where it is not: it comes from npm (`make node-clients`).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.api_stage import api_stage
from tests.support.edge_process import KEY as EDGE_KEY
from tests.support.edge_process import running_edge
from tests.support.edge_scripts import Silence
from tests.support.nats_server import running_nats_server
from tests.support.scripted_answer import WORDS
from tests.support.whole_relay import KEY, MODEL

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tests" / "support" / "openai_node.mjs"
FOLDER = Path(os.environ.get("BATON_NODE_CLIENTS", ROOT / ".node-clients"))
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None or not (FOLDER / "node_modules" / "openai").is_dir(),
    reason="openai-node is not installed: make node-clients",
)


async def node(url: str, key: str, what: str) -> AsyncIterator[dict[str, Any]]:
    """What it says, line by line; it must end well."""
    assert NODE
    process = await asyncio.create_subprocess_exec(
        *(NODE, str(SCRIPT), str(FOLDER), f"{url}/v1", key, what), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout
    try:
        async with asyncio.timeout(60):
            async for line in process.stdout:
                yield json.loads(line)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[str]:
    with running_nats_server(tmp_path / "nats") as url:
        yield url


async def test_all_that_it_does(own_nats: str, tmp_path: Path) -> None:
    seen: dict[str, Any] = {}
    async with api_stage(own_nats, tmp_path) as stage:
        async for said in node(str(stage.client.base_url).rstrip("/"), KEY, "all"):
            seen |= said
    text = "".join(WORDS)
    assert (seen["streamed"], seen["whole"], seen["response"]) == (text, text, text)
    assert seen["usage"]["completion_tokens"] == seen["whole_usage"]["completion_tokens"] == len(WORDS)
    assert {"response.created", "response.output_text.delta", "response.completed"} <= set(seen["types"])
    assert seen["vector"] == pytest.approx([0.799878, 0.013962, 0.6], abs=1e-5)
    assert seen["vector"] == pytest.approx(seen["floats"], abs=1e-7)
    assert [(error["name"], error["status"], error["code"], error["param"]) for error in seen["errors"]] == [
        ("NotFoundError", 404, "model_not_found", "model"),
        ("BadRequestError", 400, "invalid_value", "temperature"),
        ("AuthenticationError", 401, "invalid_api_key", None),
        ("NotFoundError", 404, "not_found", "response_id"),
    ]
    assert MODEL in seen["models"]


async def test_it_parses_on_over_comments(nats_url: str) -> None:
    silence = Silence()
    seen: dict[str, Any] = {}
    async with running_edge(nats_url, silence, keep_alive_seconds=0.02) as edge:
        async for said in node(edge.url, EDGE_KEY, "silence"):
            seen |= said
            if said.get("heard"):
                silence.heard.set()
    assert seen == {"heard": True, "text": "At last."}
