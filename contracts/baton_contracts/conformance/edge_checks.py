"""What an edge must do over HTTP, whatever stands behind it: ids, keys, errors in OpenAI's form."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from baton_contracts.conformance.probe import Check, Probe, expect


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


def _call(url: str, *, key: str = "", body: bytes | None = None, headers: Mapping[str, str] = {}) -> Answer:
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json", **headers})  # noqa: S310
    if key:
        request.add_header("authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
            return Answer(response.status, dict(response.headers.items()), response.read())
    except urllib.error.HTTPError as error:
        return Answer(error.code, dict(error.headers.items()), error.read())


def _error_of(answer: Answer) -> dict[str, Any]:
    error = json.loads(answer.body).get("error", {})
    expect({"message", "type", "param", "code"} <= set(error), f"not an OpenAI error object: {error}")
    return error


def checks(url: str, key: str) -> dict[str, Check]:
    chat = f"{url.rstrip('/')}/v1/chat/completions"
    good = json.dumps({"model": "auto", "messages": [{"role": "user", "content": "Hi"}]}).encode()

    async def alive(probe: Probe) -> None:
        answer = await asyncio.to_thread(_call, f"{url.rstrip('/')}/healthz")
        expect(answer.status == 200, f"/healthz answers {answer.status}")

    async def wrong_key(probe: Probe) -> None:
        answer = await asyncio.to_thread(_call, chat, key="sk-wrong", body=good)
        expect(answer.status == 401, f"a wrong key is answered {answer.status}, not 401")
        _error_of(answer)

    async def broken_json(probe: Probe) -> None:
        answer = await asyncio.to_thread(_call, chat, key=key, body=b"{")
        expect(answer.status == 400, f"broken JSON is answered {answer.status}, not 400")
        _error_of(answer)

    async def hostile_request_id(probe: Probe) -> None:
        answer = await asyncio.to_thread(_call, chat, key=key, body=good, headers={"x-request-id": "a.b.>"})
        expect(answer.status == 400, f"a hostile request id is answered {answer.status}, not 400")
        names = {name.lower(): value for name, value in answer.headers.items()}
        expect(">" not in names.get("x-request-id", ">"), "the answer carries no clean x-request-id")

    return {
        "is alive": alive,
        "refuses a wrong key": wrong_key,
        "refuses broken JSON": broken_json,
        "refuses a hostile request id": hostile_request_id,
    }
