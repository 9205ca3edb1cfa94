"""The whole relay in the test's own event loop, from HTTP to the engine and back, over a real NATS server.

All stops are the real ones; only personal data is not looked for, and documents are not.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from baton_common.bus import Bus
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.vault import Vault, new_key
from baton_edge_api.server import listen
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.wiring import wire as wire_edge
from baton_engine_worker.__main__ import wire as wire_worker
from baton_engine_worker.settings import Settings as WorkerSettings
from baton_inference_router.__main__ import wire as wire_router
from baton_inference_router.settings import Settings as RouterSettings
from baton_input_guardrails.config import InputConfig
from baton_input_guardrails.search import PersonalDataSearch
from baton_input_guardrails.wiring import guard_actor
from baton_llm_gateway.__main__ import wire as wire_gateway
from baton_llm_gateway.settings import Settings as GatewaySettings
from baton_output_guardrails.config import OutputConfig
from baton_output_guardrails.settings import Settings as GuardSettings
from baton_output_guardrails.wiring import compile_rules
from baton_output_guardrails.wiring import wire as wire_guard
from baton_prompt_builder.settings import Settings as BuilderSettings
from baton_prompt_builder.wiring import wire as wire_builder
from tests.support.books import make_after_stream
from tests.support.no_personal_data import NoPersonalData

MODEL = "smollm2-135m"
KEY = "sk-whole-relay-1"

Wire = Callable[[Node, Any], AbstractAsyncContextManager[None]]


class WholeRelay:
    run_guard: Callable[[OutputConfig], Awaitable[None]]
    """Puts an output guard with these rules in the place of the one that runs."""

    def __init__(self, url: str, engine: Any) -> None:
        self.engine = engine
        self.client = httpx.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=30, trust_env=False
        )

    async def ask(self, content: str = "Hello?", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": content}]} | fields
        return await self.client.post("/v1/chat/completions", json=body)

    async def answer(self, content: str = "Hello?", **fields: Any) -> dict[str, Any]:
        response = await self.ask(content, **fields)
        assert response.status_code == 200, response.text
        return response.json()

    async def refusal(self, **fields: Any) -> tuple[int, str, str]:
        response = await self.ask(**fields)
        error = response.json()["error"]
        return response.status_code, error["code"], error["param"]


@asynccontextmanager
async def whole_relay(
    nats_url: str, home: Path, engine: Any, *, vector_size: int = 384
) -> AsyncGenerator[WholeRelay, None]:
    edge = EdgeSettings.model_validate({"port": 0, "dev_key": KEY, "home": home})
    key = new_key()
    guard = GuardSettings.model_validate({"vault_key": key})
    vault = Vault(key)
    sock = listen(edge)
    wires: dict[str, Wire] = {
        "engine_worker": lambda node, bus: wire_worker(
            WorkerSettings(model=MODEL, model_path=Path("none")), engine, node, bus
        ),
        "inference_router": lambda node, bus: wire_router(RouterSettings(), node, bus),
        "llm_gateway": lambda node, bus: wire_gateway(GatewaySettings(home=home), node, bus),
        "input_guardrails": _wire_input_guard(vault),
        "prompt_builder": wire_builder(
            BuilderSettings(home=home, seed_documents=False, vector_size=vector_size)
        ),
        "edge_api": wire_edge(edge, sock),
    }
    async with AsyncExitStack() as stack:
        guards = await stack.enter_async_context(AsyncExitStack())

        async def run_guard(rules: OutputConfig) -> None:
            await guards.aclose()
            wire = wire_guard(guard, rules, vault, compile_rules(rules))
            await guards.enter_async_context(running_service(nats_url, "output_guardrails", wire))

        for service, wire in wires.items():
            await stack.enter_async_context(running_service(nats_url, service, wire))
        await run_guard(OutputConfig())
        relay = WholeRelay(f"http://127.0.0.1:{sock.getsockname()[1]}", engine)
        relay.run_guard = run_guard
        stack.push_async_callback(relay.client.aclose)
        yield relay


@asynccontextmanager
async def running_service(nats_url: str, service: Any, wire: Wire) -> AsyncGenerator[None, None]:
    bus = await NatsBus.connect(nats_url, name=service)
    if service == "engine_worker":
        await make_after_stream(bus)
    node = Node(bus, service)
    try:
        await node.start()
        async with wire(node, bus):
            await node.become_ready()
            yield
            await node.drain(2)
        await node.stop()
    finally:
        await bus.close()


def _wire_input_guard(vault: Vault) -> Wire:
    @asynccontextmanager
    async def running(node: Node, bus: Bus) -> AsyncGenerator[None, None]:
        del bus
        search = PersonalDataSearch(NoPersonalData())
        node.add(guard_actor(node, search, vault, InputConfig()))
        try:
            yield
        finally:
            search.close()

    return running
