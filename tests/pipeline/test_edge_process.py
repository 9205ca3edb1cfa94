"""The edge as `baton up` starts it: a process of its own, with no more rights on NATS than it is given."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx

from baton_contracts import subjects
from baton_edge_api.keys import key_hash
from tests.support.edge_process import KEY, QUESTION, FakeRelay, hello
from tests.support.restricted_nats import restricted_nats
from tests.support.service_process import running_service


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_the_edge_needs_only_its_own_rights(tmp_path: Path) -> None:
    port = free_port()
    with restricted_nats(tmp_path) as nats:
        operator = await nats.connect()
        await operator.jetstream.add_stream(name=subjects.STREAM_AFTER, subjects=[subjects.AFTER_ALL])
        relay = FakeRelay(await nats.connect(), hello)
        await relay.start()
        environment = nats.environment("edge_api") | {"BATON_PORT": str(port)}
        async with running_service("edge_api", environment) as edge:
            await edge.logged("making the bucket")
            bucket = await wait_for_bucket(relay)
            value = b'{"key_id": "k", "tenant_id": "acme", "team": "ops", "created_at": "2026-01-01"}'
            await bucket.put(key_hash(KEY), value)
            base = f"http://127.0.0.1:{port}"
            async with httpx.AsyncClient(base_url=base, headers={"authorization": f"Bearer {KEY}"}) as client:
                while (await client.get("/v1/models")).status_code != 200:
                    pass
                answer = await client.post("/v1/chat/completions", json=QUESTION)
            assert answer.status_code == 200
            assert {span["stop"] for span in await relay.spans()} == {1, 2, 9}
            assert len(relay.records["conversation"]) == 1
            assert await edge.terminate() == 0
            assert not [line for line in edge.lines if "ermission" in line or "ERROR" in line]
        await relay.stop()
        await operator.close()


async def wait_for_bucket(relay: FakeRelay) -> object:
    from nats.js.errors import BucketNotFoundError

    while True:
        try:
            return await relay.bus.jetstream.key_value(subjects.BUCKET_KEYS)
        except BucketNotFoundError:
            continue


async def test_a_port_that_is_taken_ends_the_start_with_a_sentence(tmp_path: Path) -> None:
    import asyncio
    import os
    import sys

    with socket.create_server(("127.0.0.1", 0)) as taken:
        env = os.environ | {"BATON_PORT": str(taken.getsockname()[1])}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "baton_edge_api", env=env, stderr=asyncio.subprocess.PIPE
        )
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode().startswith("BATON_HOST, BATON_PORT: can't listen on 127.0.0.1:")
