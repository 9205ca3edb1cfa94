"""Baton's engine alone behind HTTP: POST /v1/completions streams what AsyncEngine gives, nothing in between.

Speaks as much of the completions API as the load client asks for.
`python -m bench.peers.engine_server MODEL`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

from baton_engine import (
    AsyncEngine,
    EngineConfig,
    EngineRequest,
    RequestDelta,
    RequestRejected,
    SamplingParams,
)

import uvicorn  # isort: skip  (baton_engine comes before whatever might import torch)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

SWITCH_SECONDS = 0.0005
"""As in the engine worker: the step loop's Python must not hold an event back for 5 ms."""


class Server:
    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._step: list[tuple[asyncio.Queue[RequestDelta], RequestDelta]] = []  # the engine thread's alone

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        loop = asyncio.get_running_loop()

        def step_done() -> None:
            batch, self._step = self._step, []
            loop.call_soon_threadsafe(_deliver, batch)

        self._engine.set_step_listener(step_done)
        await self._engine.start()
        yield
        self._engine.set_step_listener(None)
        await self._engine.close()

    async def health(self, _: Request) -> Response:
        return JSONResponse({"state": self._engine.state})

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        deltas: asyncio.Queue[RequestDelta] = asyncio.Queue()
        asked = EngineRequest(
            request_id=uuid4().hex,
            prompt_token_ids=body["prompt"],
            sampling=SamplingParams(
                max_tokens=body["max_tokens"],
                temperature=body.get("temperature", 1.0),
                ignore_eos=body.get("ignore_eos", False),
            ),
        )
        try:
            self._engine.submit(asked, lambda delta: self._step.append((deltas, delta)))
        except RequestRejected as error:
            return JSONResponse({"error": {"message": str(error)}}, status_code=400)
        return StreamingResponse(self._events(asked.request_id, deltas), media_type="text/event-stream")

    async def _events(self, request_id: str, deltas: asyncio.Queue[RequestDelta]) -> AsyncGenerator[str]:
        ended = False
        try:
            while not ended:
                delta = await deltas.get()
                ended = delta.finish_reason is not None
                yield _event(delta)
            yield "data: [DONE]\n\n"
        finally:
            if not ended:
                self._engine.cancel(request_id)


def _deliver(batch: list[tuple[asyncio.Queue[RequestDelta], RequestDelta]]) -> None:
    for queue, delta in batch:
        queue.put_nowait(delta)


def _event(delta: RequestDelta) -> str:
    event: dict[str, object] = {
        "choices": [{"index": 0, "text": delta.text, "finish_reason": delta.finish_reason}]
    }
    if delta.error is not None:
        event["error"] = {"code": delta.error.code, "message": delta.error.message}
    if delta.usage is not None:
        event["usage"] = {"completion_tokens": delta.usage.completion_tokens}
    return f"data: {json.dumps(event)}\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers.engine_server", description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--port", type=int, default=8001)
    parser.add_argument("--quantization", choices=["int8", "int4"])
    options = parser.parse_args()
    sys.setswitchinterval(SWITCH_SECONDS)
    server = Server(AsyncEngine(EngineConfig(model=options.model, quantization=options.quantization)))
    app = Starlette(
        routes=[
            Route("/health", server.health),
            Route("/v1/completions", server.completions, methods=["POST"]),
        ],
        lifespan=server.lifespan,
    )
    uvicorn.run(app, host="127.0.0.1", port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
