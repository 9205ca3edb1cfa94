"""The edge as `baton up` starts it: a process of its own, with no more rights on NATS than it is given."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import sys
from pathlib import Path

import httpx
import pytest
from nats.js.errors import BucketNotFoundError
from nats.js.kv import KeyValue

from baton_contracts import subjects
from baton_contracts.keys import key_hash
from tests.support.edge_process import KEY, QUESTION, FakeRelay, hello, running_edge
from tests.support.ports import free_port
from tests.support.restricted_nats import restricted_nats
from tests.support.service_process import running_service


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
            assert await relay.record("conversation")
            assert await edge.terminate() == 0
            assert not [line for line in edge.lines if "ermission" in line or "ERROR" in line]
        await relay.stop()
        await operator.close()


async def wait_for_bucket(relay: FakeRelay) -> KeyValue:
    async with asyncio.timeout(10):
        while True:
            try:
                return await relay.bus.jetstream.key_value(subjects.BUCKET_KEYS)
            except BucketNotFoundError:
                continue


async def start_and_end(environment: dict[str, str]) -> tuple[int | None, str]:
    """Of a process that is to end by itself: its status and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "baton_edge_api", env=os.environ | environment, stderr=asyncio.subprocess.PIPE
    )
    _, errors = await asyncio.wait_for(process.communicate(), 30)
    return process.returncode, errors.decode()


async def test_a_port_that_is_taken_ends_the_start_with_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, errors = await start_and_end({"BATON_PORT": str(taken.getsockname()[1])})
    assert status == 2
    assert errors.startswith("BATON_HOST, BATON_PORT: can't listen on 127.0.0.1:")


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 and its key."""
    import datetime
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / "cert.pem", folder / "key.pem"
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_file, key_file


async def test_tls_with_a_certificate_of_ones_own(nats_url: str, tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    async with running_edge(nats_url, tls_cert=cert, tls_key=key) as edge:
        url = edge.url.replace("http://", "https://")
        context = ssl.create_default_context(cafile=cert)
        async with httpx.AsyncClient(base_url=url, headers=edge.headers, verify=context) as client:
            response = await client.post("/v1/chat/completions", json=QUESTION | {"stream": True})
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"BATON_TLS_CERT": "cert.pem"}, "BATON_TLS_CERT, BATON_TLS_KEY: give both or neither."),
        (
            {"BATON_TLS_CERT": "absent.pem", "BATON_TLS_KEY": "absent.pem"},
            "BATON_TLS_CERT, BATON_TLS_KEY: can't be used",
        ),
        ({"BATON_PORT": "99999"}, "BATON_PORT: "),
        ({"BATON_IDLE_TIMEOUT": "0"}, "BATON_IDLE_TIMEOUT: "),
    ],
)
async def test_a_bad_setting_ends_the_start_with_a_sentence(
    environment: dict[str, str], sentence: str
) -> None:
    status, errors = await start_and_end(environment)
    assert status == 2
    assert sentence in errors
