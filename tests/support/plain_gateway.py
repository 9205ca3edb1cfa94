"""A plain gateway in the test's own event loop: the real edge and LLM gateway over a real NATS server, before
scripted providers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from baton_common.bus import BusMessage
from baton_common.nats_bus import NatsBus
from baton_contracts import subjects
from baton_contracts.records import UsageRecord
from baton_edge_api.server import listen
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.wiring import wire as wire_edge
from baton_llm_gateway.__main__ import wire as wire_gateway
from baton_llm_gateway.settings import Settings as GatewaySettings
from tests.support.fake_provider import FakeProvider
from tests.support.waiting import eventually
from tests.support.whole_relay import running_service

KEY = "sk-plain-gateway-1"


class PlainGateway:
    def __init__(self, url: str, bus: NatsBus) -> None:
        self.client = httpx.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30, trust_env=False
        )
        self.bus = bus
        self.rows: list[UsageRecord] = []
        self.num_handoffs = 0

    async def ask(self, model: str = "far", content: str = "Hello?", **fields: Any) -> httpx.Response:
        body = {"model": model, "messages": [{"role": "user", "content": content}]} | fields
        return await self.client.post("/v1/chat/completions", json=body)

    def note_handoff(self, message: BusMessage) -> None:
        del message
        self.num_handoffs += 1

    async def took(self, count: int) -> None:
        """Returns when the gateway has taken so many requests in all."""
        await eventually(lambda: self.num_handoffs >= count)
        await self.bus.request("$SRV.PING.llm_gateway", b"", timeout=2)  # behind them on its connection

    def note_row(self, message: BusMessage) -> None:
        self.rows.append(UsageRecord.decode(message.payload))


def catalog(*targets: tuple[str, FakeProvider], more: str = "", **limits: Any) -> str:
    """Each (model, provider) is a model with one target; `limits` go to all targets."""
    quick = {"connect_seconds": 2, "first_token_seconds": 5, "stall_seconds": 5} | limits
    lines = [f"{name} = {value}" for name, value in quick.items()]
    parts = [more]
    for model, provider in targets:
        parts += [f"[[models.{model}.targets]]", f'base_url = "{provider.base_url}"', *lines]
    return "\n".join(parts) + "\n"


@asynccontextmanager
async def plain_gateway(
    nats_url: str, home: Path, text: str, **settings: Any
) -> AsyncGenerator[PlainGateway, None]:
    (home / "catalog.toml").write_text(text)
    edge = EdgeSettings.model_validate({"port": 0, "dev_key": KEY, "plain_gateway": True, "home": home})
    gateway = GatewaySettings.model_validate({"home": home} | settings)
    sock = listen(edge)
    async with AsyncExitStack() as stack:
        bus = await NatsBus.connect(nats_url, name="operator")
        stack.push_async_callback(bus.close)
        await bus.jetstream.add_stream(name=subjects.STREAM_AFTER, subjects=[subjects.AFTER_ALL])
        await stack.enter_async_context(
            running_service(nats_url, "llm_gateway", lambda node, bus: wire_gateway(gateway, node, bus))
        )
        await stack.enter_async_context(running_service(nats_url, "edge_api", wire_edge(edge, sock)))
        plain = PlainGateway(f"http://127.0.0.1:{sock.getsockname()[1]}", bus)
        await bus.subscribe(f"{subjects.ROOT}.after.usage.*", plain.note_row)
        await bus.subscribe(subjects.GATEWAY_ALL, plain.note_handoff)
        stack.push_async_callback(plain.client.aclose)
        yield plain
