"""/v1/files over HTTP, stored in a real object store."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from baton_contracts.openai_batches import FileList, FileObject
from baton_contracts.subjects import BUCKET_KEYS
from baton_edge_api import turns as turns_module
from baton_edge_api.batches.store import OfflineStore
from baton_edge_api.batches.sweep import sweep
from baton_edge_api.keys import key_hash
from tests.support.batch_files import nats_url, upload
from tests.support.edge_process import RunningEdge, running_edge
from tests.support.waiting import eventually

__all__ = ["nats_url"]

OTHER_KEY = "sk-of-another-tenant"


@pytest.fixture
async def edge(nats_url: str) -> AsyncIterator[RunningEdge]:
    async with running_edge(nats_url, max_file_bytes=3_000_000, max_tenant_file_bytes=4_000_000) as running:
        yield running


@pytest.fixture
async def client(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as opened:
        yield opened


@asynccontextmanager
async def other_client(edge: RunningEdge) -> AsyncIterator[httpx.AsyncClient]:
    """Of another tenant."""
    bucket = await edge.relay.bus.jetstream.key_value(BUCKET_KEYS)
    entry = {"key_id": "k2", "tenant_id": "other.tenant*", "created_at": 1.0}
    await bucket.put(key_hash(OTHER_KEY), json.dumps(entry).encode())
    headers = {"authorization": f"Bearer {OTHER_KEY}"}
    async with httpx.AsyncClient(base_url=edge.url, headers=headers) as other:
        while (await other.get("/v1/models")).status_code == 401:
            pass
        yield other


def error_of(response: httpx.Response) -> tuple[int, str, str | None]:
    error = response.json()["error"]
    return response.status_code, error["code"], error["param"]


async def files_of(client: httpx.AsyncClient, **query: Any) -> FileList:
    response = await client.get("/v1/files", params=query)
    assert response.status_code == 200, response.text
    return FileList.model_validate(response.json())


async def test_what_goes_in_comes_out_byte_for_byte(client: httpx.AsyncClient) -> None:
    content = bytes(range(256)) * 4000
    made = FileObject.model_validate((await upload(client, content)).json())
    assert (made.bytes, made.filename, made.purpose, made.status) == (
        1_024_000,
        "lines.jsonl",
        "batch",
        "processed",
    )
    assert made.expires_at == made.created_at + 30 * 24 * 3600
    assert FileObject.model_validate((await client.get(f"/v1/files/{made.id}")).json()) == made
    fetched = await client.get(f"/v1/files/{made.id}/content")
    assert fetched.content == content
    assert fetched.headers["content-type"] == "application/octet-stream"
    assert fetched.headers["x-content-type-options"] == "nosniff"
    head = await client.head(f"/v1/files/{made.id}/content")
    told = {name: value for name, value in fetched.headers.items() if name not in ("date", "x-request-id")}
    assert (head.content, told.items() <= head.headers.items()) == (b"", True)
    gone = await client.delete(f"/v1/files/{made.id}")
    assert gone.json() == {"id": made.id, "object": "file", "deleted": True}
    for path in ("", "/content"):
        assert error_of(await client.get(f"/v1/files/{made.id}{path}")) == (404, "not_found", "file_id")


async def test_an_empty_file_is_a_file(client: httpx.AsyncClient) -> None:
    made = (await upload(client, b"")).json()
    assert made["bytes"] == 0
    assert (await client.get(f"/v1/files/{made['id']}/content")).content == b""


async def test_lists_are_cut_into_pages(client: httpx.AsyncClient) -> None:
    ids = [(await upload(client, b"x", "user_data")).json()["id"] for _ in range(3)]
    batch = (await upload(client, b"x")).json()["id"]
    assert {file.id for file in (await files_of(client)).data} == {*ids, batch}
    assert [file.id for file in (await files_of(client, purpose="batch")).data] == [batch]
    first = await files_of(client, purpose="user_data", limit=2)
    rest = await files_of(client, purpose="user_data", limit=2, after=first.last_id)
    assert (len(first.data), first.has_more, len(rest.data), rest.has_more) == (2, True, 1, False)
    newest_first = [file.id for file in (*first.data, *rest.data)]
    oldest_first = [file.id for file in (await files_of(client, purpose="user_data", order="asc")).data]
    assert sorted(newest_first) == sorted(ids)
    assert oldest_first == newest_first[::-1]
    for query, param in (({"limit": 0}, "limit"), ({"order": "up"}, "order"), ({"after": "file-x"}, "after")):
        assert error_of(await client.get("/v1/files", params=query)) == (400, "invalid_value", param)


async def test_a_file_is_its_tenants_alone(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    made = (await upload(client, b"secret")).json()
    async with other_client(edge) as other:
        assert (await files_of(other)).data == []
        for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
            response = await other.request(method, f"/v1/files/{made['id']}{path}")
            assert error_of(response) == (404, "not_found", "file_id")
        theirs = (await upload(other, b"theirs")).json()
        assert [file.id for file in (await files_of(other)).data] == [theirs["id"]]
    assert [file.id for file in (await files_of(client)).data] == [made["id"]]


@pytest.mark.parametrize(
    ("files", "data", "expected"),
    [
        ({}, {"purpose": "batch", "file": "no file"}, (400, "invalid_request", None)),
        ({"file": ("x", b"x")}, {}, (400, "missing_required_parameter", "purpose")),
        ({"file": ("x", b"x")}, {"purpose": "batch_output"}, (400, "invalid_value", "purpose")),
        ({"other": ("x", b"x")}, {"purpose": "batch"}, (400, "missing_required_parameter", "file")),
        (
            {"file": ("x", b"x")},
            {"purpose": "batch", "expires_after[anchor]": "created_at", "expires_after[seconds]": "60"},
            (400, "invalid_value", "expires_after"),
        ),
        ({"file": ("x", b"x"), "other": ("y", b"y")}, {"purpose": "batch"}, (400, "invalid_request", None)),
        ({"file": ("x", b"x" * 3_000_001)}, {"purpose": "batch"}, (413, "request_too_large", "file")),
        ({"file": ("x", b"x" * 4_000_000)}, {"purpose": "batch"}, (413, "request_too_large", None)),
    ],
)
async def test_a_bad_upload_is_told_why(
    client: httpx.AsyncClient, files: Any, data: Any, expected: tuple[int, str, str | None]
) -> None:
    assert error_of(await client.post("/v1/files", files=files, data=data)) == expected
    assert (await files_of(client)).data == []


async def test_a_form_that_breaks_off_is_400(client: httpx.AsyncClient) -> None:
    for body in (b"", b"--x\r\nContent-Dis", b"--x\r\nContent-Disposition: form-data\r\n\r\ny\r\n--x--\r\n"):
        headers = {"content-type": "multipart/form-data; boundary=x"}
        response = await client.post("/v1/files", content=body, headers=headers)
        assert response.status_code == 400, body
        headers = {"content-type": "multipart/form-data"}
        assert (await client.post("/v1/files", content=body, headers=headers)).status_code == 400


async def test_hostile_forms_are_refused_never_a_failure(client: httpx.AsyncClient) -> None:
    named = b'Content-Disposition: form-data; name="file"; filename="a"'
    part = b"--x\r\n" + named + b"\r\nContent-Type: \xff\r\n\r\nx\r\n--x--"
    many = b"--x\r\n" + b"A: b\r\n" * 5000
    for media_type in (b'boundary=""', b"boundary=" + b"x" * 500, b"charset=utf-7; boundary=x", b";;;"):
        for body in (part, many, b"\x00" * 100):
            headers = {b"content-type": b"multipart/form-data; " + media_type}
            response = await client.post("/v1/files", content=body, headers=headers)
            assert response.status_code == 400, (media_type, body[:30], response.text)


async def test_a_tenants_files_have_a_bound_together(client: httpx.AsyncClient) -> None:
    first = (await upload(client, b"x" * 2_500_000)).json()
    assert error_of(await upload(client, b"x" * 2_000_000)) == (413, "request_too_large", "file")
    await client.delete(f"/v1/files/{first['id']}")
    assert (await upload(client, b"x" * 2_000_000)).status_code == 200


async def test_uploads_that_come_together_have_that_bound_too(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(upload(client, b"x" * 1_500_000) for _ in range(3)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 413]


async def test_one_tenants_uploads_do_not_keep_others_out(
    edge: RunningEdge, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three that never end, then a fourth of the same tenant, then one of another."""
    ends = asyncio.Event()
    num_turns = 0
    within = turns_module._within

    async def counted(turns: asyncio.Semaphore, deadline: float) -> bool:
        nonlocal num_turns
        is_taken = await within(turns, deadline)
        num_turns += is_taken
        return is_taken

    async def endless() -> AsyncIterator[bytes]:
        yield b"--b\r\n"
        await ends.wait()

    monkeypatch.setattr(turns_module, "_within", counted)
    headers = {"content-type": "multipart/form-data; boundary=b"}
    slow = [
        asyncio.create_task(client.post("/v1/files", content=endless(), headers=headers)) for _ in range(3)
    ]
    await eventually(lambda: num_turns == 6)  # each has one of its tenant's and one of everybody's
    monkeypatch.setattr(turns_module, "WAIT_SECONDS", 0.05)
    refused = await upload(client, b"x")
    assert error_of(refused) == (429, "rate_limit_exceeded", None)
    assert refused.headers["retry-after"] == "1"
    async with other_client(edge) as other:
        assert (await upload(other, b"x")).status_code == 200
    ends.set()
    assert {answer.status_code for answer in await asyncio.gather(*slow)} == {400}


async def test_a_client_that_takes_nothing_gives_its_turn_back(nats_url: str) -> None:
    """Of a file larger than what the system's buffers hold."""
    size = 16_000_000
    bounds = {"max_file_bytes": size, "max_tenant_uploads": 1, "write_timeout": 0.5}
    async with (
        running_edge(nats_url, **bounds) as edge,
        httpx.AsyncClient(base_url=edge.url, headers=edge.headers, timeout=20) as client,
    ):
        made = (await upload(client, b"x" * size)).json()
        path = f"/v1/files/{made['id']}/content"
        reader, writer = await asyncio.open_connection("127.0.0.1", edge.port, limit=1024)
        head = f"GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: {edge.headers['authorization']}\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert (await client.get(path)).status_code == 200  # once the turn is free
        came = 0
        with suppress(ConnectionError):
            while piece := await reader.read(1 << 20):
                came += len(piece)
        assert came < size
        writer.close()


async def test_a_name_can_not_do_harm(client: httpx.AsyncClient) -> None:
    name = "..\\..//etc/pass;wd☃.jsonl"
    response = await client.post("/v1/files", files={"file": (name, b"x")}, data={"purpose": "batch"})
    made = response.json()
    assert made["filename"] == "pass;wd☃.jsonl"
    disposition = (await client.get(f"/v1/files/{made['id']}/content")).headers["content-disposition"]
    assert disposition == "attachment; filename*=UTF-8''pass%3Bwd%E2%98%83.jsonl"
    for hostile in ("file-*", "file-x", "%2e%2e", "file-" + "0" * 24, "file-" + "0" * 23 + "A"):
        assert (await client.get(f"/v1/files/{hostile}")).status_code == 404


async def test_what_is_done_with_is_swept(edge: RunningEdge, client: httpx.AsyncClient) -> None:
    form = {"purpose": "evals", "expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    soon = (await client.post("/v1/files", files={"file": ("a", b"a")}, data=form)).json()
    kept = (await upload(client, b"b", "user_data")).json()
    store = OfflineStore(edge.relay.bus, 1 << 20)
    await (await store._files()).put("file-without-entry", b"left over")
    await store.add_line("batch_gone", 1, b"left over")
    now = time.time()
    await sweep(store, now)
    assert {name for name, _ in await store.contents()} == {soon["id"], kept["id"], "file-without-entry"}
    assert await store.batches_with_lines() == set()
    await sweep(store, now + 3601)
    assert {name for name, _ in await store.contents()} == {kept["id"]}
    assert [file.id for file in (await files_of(client)).data] == [kept["id"]]
