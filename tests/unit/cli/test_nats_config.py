"""The bus' configuration, as text and as a real server understands it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import nats
import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from baton_cli.up.nats_config import OPERATOR, new_passwords, render_nats_config
from baton_cli.up.settings import SERVICES
from baton_contracts import subjects
from baton_contracts.permissions import inbox_prefix
from tests.support.nats_server import running_nats_server

PASSWORDS = {user: f"pw-{user}" for user in (*SERVICES, OPERATOR)}
RID = "0123456789abcdef0123456789abcdef"


def test_the_text_names_port_store_limits_and_every_user() -> None:
    text = render_nats_config(port=4333, store=Path('/a "b"/nats'), passwords=PASSWORDS)
    assert "host: 127.0.0.1" in text
    assert "port: 4333" in text
    assert "max_payload: 8388608" in text
    assert r'store_dir: "/a \"b\"/nats"' in text
    assert re.findall(r'user: "(\w+)"', text) == [*SERVICES, "operator"]
    assert text.count("allow_responses") == len(SERVICES)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("bus")
    config = folder / "nats.conf"
    config.write_text(render_nats_config(port=4222, store=folder / "store", passwords=PASSWORDS))
    with running_nats_server(folder, config) as url:
        yield url


@asynccontextmanager
async def connected(url: str, user: str, errors: asyncio.Queue[str] | None = None) -> AsyncIterator[Client]:
    async def on_error(error: Exception) -> None:
        if errors:
            await errors.put(str(error))

    client = await nats.connect(
        url,
        user=user,
        password=PASSWORDS[user],
        inbox_prefix=inbox_prefix(user).encode(),
        allow_reconnect=False,
        error_cb=on_error,
    )
    try:
        yield client
    finally:
        await client.close()


async def test_a_wrong_password_is_refused(url: str) -> None:
    async def ignore(_: Exception) -> None: ...

    client = Client()
    with pytest.raises(nats.errors.Error, match=r"(?i)authorization"):
        await client.connect(url, user="edge_api", password="wrong", allow_reconnect=False, error_cb=ignore)
    await client.close()


async def test_a_request_is_answered_by_permission_of_its_reply_subject(url: str) -> None:
    async with connected(url, "edge_api") as edge, connected(url, "prompt_builder") as builder:

        async def answer(message: Msg) -> None:
            await message.respond(b"held")

        await builder.subscribe(subjects.PROMPT_ALL, queue="prompt_builder", cb=answer)
        await builder.flush()
        await builder.flush()
        for _ in range(3):
            reply = await edge.request(subjects.prompt(RID), b"question", timeout=5)
            assert reply.data == b"held"


async def test_nobody_may_speak_for_another_stop(url: str) -> None:
    errors: asyncio.Queue[str] = asyncio.Queue()
    async with connected(url, "embedder", errors) as embedder:
        await embedder.publish(subjects.gateway(RID), b"forged")
        said = await asyncio.wait_for(errors.get(), 20)
    assert "permissions violation" in said.lower()
    assert subjects.gateway(RID) in said


async def test_nobody_reads_the_replies_of_another(url: str) -> None:
    errors: asyncio.Queue[str] = asyncio.Queue()
    async with connected(url, "llm_gateway", errors) as gateway:
        await gateway.subscribe(f"{inbox_prefix('edge_api')}.>")
        said = await asyncio.wait_for(errors.get(), 20)
    assert "permissions violation for subscription" in said.lower()


async def test_the_operator_makes_the_bucket_and_the_edge_reads_it(url: str) -> None:
    async with connected(url, OPERATOR) as operator, connected(url, "edge_api") as edge:
        bucket = await operator.jetstream().create_key_value(bucket=subjects.BUCKET_KEYS)
        await bucket.put("digest", b"record")
        seen = await edge.jetstream().key_value(subjects.BUCKET_KEYS)
        watcher = await seen.watchall()
        entry = await watcher.updates(timeout=5)
        assert entry is not None
        assert (entry.key, entry.value) == ("digest", b"record")
        await watcher.stop()


def test_passwords_are_all_different_and_never_look_like_an_option() -> None:
    """One that begins with a dash can't follow `--password` on a command line."""
    made = [password for _ in range(20) for password in new_passwords().values()]
    assert len(set(made)) == len(made)
    assert all(password.isalnum() and len(password) == 48 for password in made)
