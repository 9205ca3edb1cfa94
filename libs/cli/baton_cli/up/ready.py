"""Whether a question would be answered: the edge's `/readyz`, asked until it says yes."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import httpx

_POLL_SECONDS = 0.1
_ANSWER_SECONDS = 3.0
_READY_REPLICA = re.compile(
    r'^baton:replica_ready\{model_name="([^"]*)",replica="[^"]*"\} 1(?:\.0)?$', re.MULTILINE
)


@dataclass(frozen=True)
class Readiness:
    ready: bool
    reached: bool
    """Whether the edge answered at all."""
    detail: str
    """What is still missing, for people."""


_NOT_YET = Readiness(ready=False, reached=False, detail="edge_api does not answer yet")


class ReadinessProbe:
    def __init__(self, url: str, transport: httpx.AsyncBaseTransport | None = None) -> None:
        # The edge's certificate is for its public name, not for this loop-back question: not verified.
        self._client = httpx.AsyncClient(
            base_url=url,
            timeout=_ANSWER_SECONDS,
            verify=False,  # noqa: S501
            trust_env=False,
            transport=transport,
        )
        self.last = _NOT_YET
        self.waiting_for: tuple[str, ...] = ()

    async def ask(self) -> Readiness:
        try:
            response = await self._client.get("/readyz")
        except httpx.ConnectError:
            self.last = _NOT_YET
        except httpx.HTTPError as error:
            self.last = Readiness(ready=False, reached=False, detail=f"edge_api: {type(error).__name__}")
        else:
            self.last = Readiness(response.status_code == 200, True, _missing(response.text))
        return self.last

    async def wait(self, *, enough: bool = False) -> Readiness:
        """Until ready; with `enough`, until the edge answers whatever it may say."""
        while not (await self.ask()).ready:
            if enough and self.last.reached:
                break
            await asyncio.sleep(_POLL_SECONDS)
        return self.last

    async def wait_for_models(self, names: Iterable[str], key: str, *, seconds: float) -> tuple[str, ...]:
        """A question is answered once one model serves; this waits for the others. Those that don't serve
        within `seconds`."""
        self.waiting_for = tuple(names)
        deadline = time.monotonic() + seconds
        while self.waiting_for and time.monotonic() < deadline:
            served = await self._served(key)
            self.waiting_for = tuple(name for name in self.waiting_for if name not in served)
            if self.waiting_for:
                await asyncio.sleep(_POLL_SECONDS)
        return self.waiting_for

    async def wait_for_replicas(self, counts: Mapping[str, int], *, seconds: float) -> tuple[str, ...]:
        """Until every model has as many ready replicas. Those that haven't within `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            ready = await self._ready_replicas()
            self.waiting_for = tuple(
                f"{name} ({ready[name]} of {count})" for name, count in counts.items() if ready[name] < count
            )
            if not self.waiting_for or time.monotonic() >= deadline:
                return self.waiting_for
            await asyncio.sleep(_POLL_SECONDS)

    async def _ready_replicas(self) -> Counter[str]:
        try:
            answer = await self._client.get("/metrics")
        except httpx.HTTPError:
            return Counter()
        return Counter(_READY_REPLICA.findall(answer.text))

    async def _served(self, key: str) -> set[str]:
        try:
            answer = await self._client.get("/v1/models", headers={"authorization": f"Bearer {key}"})
            return {str(card["id"]) for card in answer.json()["data"]}
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return set()

    async def close(self) -> None:
        await self._client.aclose()


def _missing(body: str) -> str:
    """What the edge says is missing; its error's message or its plain text if it gives no list."""
    try:
        answer = json.loads(body)
    except ValueError:
        return body.strip()[:200]
    if not isinstance(answer, dict):
        return ""
    fields = cast("dict[str, Any]", answer)
    missing, error = fields.get("missing"), fields.get("error")
    if isinstance(missing, list) and missing:
        return "missing " + ", ".join(str(item) for item in cast("list[object]", missing))
    return str(cast("dict[str, Any]", error).get("message", "")) if isinstance(error, dict) else ""
