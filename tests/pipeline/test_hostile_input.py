"""A sweep of hostile input over every endpoint: each field of each body in a dozen wrong forms, broken JSON,
paths, queries, headers, connections. Never a 5xx, never a hang, always the error object; then all is well."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from baton_edge_api.openapi import document
from tests.support.api_stage import api_stage
from tests.support.nats_server import running_nats_server
from tests.support.scripted_embedder import MODEL as EMBEDDER
from tests.support.whole_relay import KEY, MODEL, WholeRelay

pytestmark = pytest.mark.asyncio(loop_scope="module")
MESSAGES = [{"role": "user", "content": "Hi"}]
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": MESSAGES, "max_tokens": 3},
    "/v1/completions": {"model": MODEL, "prompt": "Hi", "max_tokens": 3},
    "/v1/responses": {"model": MODEL, "input": "Hi", "max_output_tokens": 3},
    "/v1/embeddings": {"model": EMBEDDER, "input": "Hi"},
    "/v1/batches": {
        "input_file_id": "file-1",
        "endpoint": "/v1/completions",
        "completion_window": "24h",
    },
    "/v1/documents": {"source": "a.md", "text": "Hi"},
}


def deep(num: int, kind: str) -> str:
    opening, closing = ("[", "]") if kind == "list" else ('{"a":', "}")
    return opening * num + "1" + closing * num


VALUES: dict[str, str] = {
    "null": "null",
    "true": "true",
    "minus one": "-1",
    "a float": "1.5",
    "beyond 64 bits": str(2**70),
    "overflow": "1e999",
    "5000 digits": "9" * 5000,
    "nothing": '""',
    "a zero byte": '"a\\u0000b"',
    "line breaks": '"a\\r\\nset-cookie: evil=1"',
    "long": json.dumps("x" * 20_000),
    "an empty list": "[]",
    "an empty object": "{}",
    "a list of odd things": '[null, {}, [], -1, "", 1e30]',
    "an object of odd things": '{"": null, "type": [], "a.b.>": {}}',
    "deep lists": deep(300, "list"),
    "deeper objects": deep(900, "object"),
    "a subject": '"baton.v1.>"',
}
BROKEN: dict[str, bytes] = {
    "empty": b"",
    "half": b'{"model": "',
    "no utf-8": b'{"model": "\xff"}',
    "utf-16": '{"model": "a"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "too deep": b"[" * 100_000,
    "a key twice": b'{"model": "a", "model": "b"}',
    "NaN": b'{"temperature": NaN}',
    "half a character": b'{"model": "\\ud800"}',
    "two values": b"{} {}",
    "a number": b"5",
    "null": b"null",
    "zero bytes": bytes(1000),
}


@pytest.fixture(scope="module")
def own_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_nats_server(tmp_path_factory.mktemp("nats")) as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay(own_nats: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WholeRelay]:
    async with api_stage(own_nats, tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def stage(relay: WholeRelay) -> AsyncIterator[WholeRelay]:
    """After each sweep everything is answered as before."""
    yield relay
    for path, body in GOOD.items():
        if path != "/v1/batches":
            answer = await relay.client.post(path, json=body)
            assert answer.status_code == 200, (path, answer.text)


def judge(name: object, answer: httpx.Response) -> None:
    """Who asks eight times at once for all traces of this test may hear that their store is slow."""
    busy = answer.status_code == 503 and "retry-after" in answer.headers and "/v1/traces" in answer.url.path
    assert busy or answer.status_code < 500, (name, answer.status_code, answer.text[:500])
    assert len(answer.headers["x-request-id"]) == 32
    assert "set-cookie" not in answer.headers
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, name
        assert "Traceback" not in error["message"], name
        assert len(answer.content) < 2000, name


async def sweep(stage: WholeRelay, requests: list[tuple[object, str, str, dict[str, Any]]]) -> None:
    """Name, method, path and the rest of each; eight at a time."""
    at_once = asyncio.Semaphore(8)

    async def one(name: object, method: str, path: str, more: dict[str, Any]) -> None:
        async with at_once, asyncio.timeout(20):
            judge((name, method, path), await stage.client.request(method, path, **more))

    async with asyncio.TaskGroup() as group:
        for request in requests:
            group.create_task(one(*request))


def fields_of(path: str) -> list[str]:
    made = document()
    schema = made["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
    fields = list(made["components"]["schemas"][schema["$ref"].rpartition("/")[2]]["properties"])
    assert GOOD[path].keys() <= set(fields)
    return [*fields, "made_up"]


@pytest.mark.parametrize("path", GOOD)
async def test_each_field_in_each_wrong_form(stage: WholeRelay, path: str) -> None:
    requests: list[tuple[object, str, str, dict[str, Any]]] = []
    for field in fields_of(path):
        rest = {name: value for name, value in GOOD[path].items() if name != field}
        head = json.dumps(rest)[:-1] + (", " if rest else "")
        for name, value in VALUES.items():
            content = f"{head}{json.dumps(field)}: {value}}}".encode()
            requests.append(((field, name), "POST", path, {"content": content}))
    await sweep(stage, requests)


async def test_broken_bodies_and_types(stage: WholeRelay) -> None:
    kinds = ("application/json", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded", "")
    await sweep(
        stage,
        [
            (name, "POST", path, {"content": body, "headers": {"content-type": kind}})
            for name, body in BROKEN.items()
            for kind in kinds
            for path in (*GOOD, "/v1/files")
        ],
    )


async def test_paths_and_queries(stage: WholeRelay) -> None:
    odd = (
        "%00",
        "%ff",
        "..%2f..%2fetc%2fpasswd",
        "a%0d%0aset-cookie:%20evil=1",
        "%F0%9F%98%80",
        "x" * 5000,
        ".",
    )
    requests: list[tuple[object, str, str, dict[str, Any]]] = []
    for path, methods in document()["paths"].items():
        for method in (*methods, "put"):
            for value in odd:
                base, _, rest = path.partition("{")
                made = f"{base}{value}{rest.partition('}')[2]}" if rest else path
                names = ("limit", "after", "order", "by", "since", "until", "request_id", "purpose", "source")
                query = "&".join(f"{name}={value}" for name in names)
                requests += [(value, method, made, {}), (value, method, f"{made}?{query[:7000]}", {})]
    await sweep(stage, requests)


async def test_methods_that_a_path_has_not(stage: WholeRelay) -> None:
    for path, methods in document()["paths"].items():
        answer = await stage.client.put(path)
        judge(path, answer)
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed"), path
        allowed = set(answer.headers["allow"].split(", ")) - {"HEAD"}
        assert allowed >= {method.upper() for method in methods}


RAW_BYTES: dict[str, bytes] = {
    "a bad chunk": b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "a chunk too short": b"transfer-encoding: chunked\r\n\r\n5\r\n{}\r\n0\r\n\r\n",
    "two lengths": b"content-length: 2\r\ncontent-length: 40\r\n\r\n{}",
    "a length and chunks": b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    "a negative length": b"content-length: -1\r\n\r\n{}",
    "a header with a line break": b"x-request-id: a\rset-cookie: evil=1\r\ncontent-length: 2\r\n\r\n{}",
    "a folded header": b"x-request-id: a\r\n b\r\ncontent-length: 2\r\n\r\n{}",
    "a thousand kilobytes of headers": b"x-a: " + b"a" * 1_000_000 + b"\r\ncontent-length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("name", RAW_BYTES)
async def test_connections(stage: WholeRelay, name: str) -> None:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {KEY}\r\n".encode()
    url = stage.client.base_url
    async with asyncio.timeout(20):
        reader, writer = await asyncio.open_connection(url.host, url.port)
        try:
            writer.write(head + RAW_BYTES[name])
            answer = await reader.readuntil(b"\r\n\r\n")
        finally:
            writer.close()
    assert answer.split(b" ", 2)[1] in (b"400", b"413", b"431"), answer
    assert b"x-request-id: " in answer
    assert b"evil" not in answer
