"""Puts the process together: weights, thread, batches, inbox."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import torch

from baton_common.bus import Bus
from baton_common.node import Node
from baton_common.service import Wire
from baton_contracts.heartbeats import EmbeddingModel
from baton_embedder.actor import embed_responder
from baton_embedder.batching import Batcher
from baton_embedder.encoder import MeanPoolEncoder, packaged_minilm
from baton_embedder.settings import Settings


def wire(settings: Settings) -> Wire:
    def open_service(node: Node, bus: Bus) -> AbstractAsyncContextManager[None]:
        del bus  # the node has it
        return _opened(node, settings)

    return open_service


@asynccontextmanager
async def _opened(node: Node, settings: Settings) -> AsyncGenerator[None, None]:
    os.environ["HF_HUB_OFFLINE"] = "1"  # weights come from disk; a look at the network would only cost time
    # OpenMP's number of threads belongs to the thread that asks, so the model's own thread sets it.
    executor = ThreadPoolExecutor(1, "model", torch.set_num_threads, (settings.embedder_threads,))
    try:
        encoder = await asyncio.get_running_loop().run_in_executor(executor, _load, settings)
        batcher = Batcher(encoder, executor, settings.embedder_tokens_per_step)
        node.embeds = EmbeddingModel(
            name=encoder.name, dimensions=encoder.dimensions, max_tokens=settings.embedder_max_tokens
        )
        node.supervise("batching", batcher.run)
        node.add(embed_responder(node, settings, batcher, encoder.name))
        yield
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _load(settings: Settings) -> MeanPoolEncoder:
    """Loaded and warm: the first question is as quick as the others."""
    folder = settings.embedder_model_path or packaged_minilm()
    encoder = MeanPoolEncoder.load(folder, settings.embedder_max_tokens)
    for text in ("warm", "warm up " * settings.embedder_max_tokens):
        encoder.encode(encoder.tokenize([text]))
    return encoder
