"""transformers' `generate` behind HTTP, in static batches: who waits when a batch ends makes the next.

Runs in the peer's own environment, so it imports nothing of this tree. Speaks as much of the completions API
as the load client asks for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from transformers import AutoModelForCausalLM, StoppingCriteria, StoppingCriteriaList

MAX_BATCH = 32
GATHER_SECONDS = 0.02
PAD_ID = 2


@dataclass
class Job:
    prompt: list[int]
    max_tokens: int
    tokens: asyncio.Queue[int] = field(default_factory=asyncio.Queue)


class Tell(StoppingCriteria):
    """Called by `generate` after each step; passes each row's new token on. Stops nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, jobs: list[Job]) -> None:
        self._loop = loop
        self._jobs = jobs

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> Any:
        self._loop.call_soon_threadsafe(self._deliver, input_ids[:, -1].tolist())
        return torch.zeros(len(input_ids), dtype=torch.bool)

    def _deliver(self, tokens: list[int]) -> None:
        for job, token in zip(self._jobs, tokens, strict=True):
            job.tokens.put_nowait(token)


class Server:
    def __init__(self, model: Any) -> None:
        self._model = model
        self._waiting: asyncio.Queue[Job] = asyncio.Queue()

    @asynccontextmanager
    async def lifespan(self, _: Starlette) -> AsyncGenerator[None]:
        serving = asyncio.create_task(self._serve())
        yield
        serving.cancel()

    async def _serve(self) -> None:
        while True:
            jobs = [await self._waiting.get()]
            await asyncio.sleep(GATHER_SECONDS)
            while len(jobs) < MAX_BATCH and not self._waiting.empty():
                jobs.append(self._waiting.get_nowait())
            await asyncio.to_thread(self._generate, jobs, asyncio.get_running_loop())

    def _generate(self, jobs: list[Job], loop: asyncio.AbstractEventLoop) -> None:
        longest = max(len(job.prompt) for job in jobs)
        padded = [[PAD_ID] * (longest - len(job.prompt)) + job.prompt for job in jobs]
        mask = [[0] * (longest - len(job.prompt)) + [1] * len(job.prompt) for job in jobs]
        with torch.inference_mode():
            self._model.generate(
                input_ids=torch.tensor(padded),
                attention_mask=torch.tensor(mask),
                max_new_tokens=max(job.max_tokens for job in jobs),
                do_sample=False,
                stopping_criteria=StoppingCriteriaList([Tell(loop, jobs)]),
            )

    async def health(self, _: Request) -> Response:
        return JSONResponse({"state": "ready"})

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        job = Job(body["prompt"], body["max_tokens"])
        self._waiting.put_nowait(job)
        return StreamingResponse(_events(job), media_type="text/event-stream")


async def _events(job: Job) -> AsyncGenerator[str]:
    for _ in range(job.max_tokens):
        token = await job.tokens.get()
        yield f"data: {json.dumps({'choices': [{'index': 0, 'token_ids': [token]}]})}\n\n"
    yield f"data: {json.dumps({'choices': [], 'usage': {'completion_tokens': job.max_tokens}})}\n\n"
    yield "data: [DONE]\n\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--port", type=int, default=8001)
    options = parser.parse_args()
    torch.set_num_threads(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16)
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = PAD_ID
    server = Server(model.eval())
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
