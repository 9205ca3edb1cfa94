"""The gateway's process: wiring only."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager

from baton_common.actor import Actor
from baton_common.bus import Bus
from baton_common.catalog import Catalog, CatalogError, catalog_of, catalog_or_exit
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_common.intake import InboxLimits
from baton_common.node import Node
from baton_common.routes import Target
from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_contracts import subjects
from baton_contracts.handoffs import GatewayHandoff
from baton_contracts.heartbeats import REPLICA_HEARD_WITHIN_SECONDS
from baton_llm_gateway.actor import Gateway
from baton_llm_gateway.books import Books
from baton_llm_gateway.difficulty import shipped
from baton_llm_gateway.likeness import EmbedderClient
from baton_llm_gateway.model_choice import ModelChooser
from baton_llm_gateway.other_servers import Providers
from baton_llm_gateway.providers.connections import Connections, addresses
from baton_llm_gateway.recall import CachePolicy, Recall
from baton_llm_gateway.relay import RelayLimits, RelayParts
from baton_llm_gateway.response_cache import ResponseCache
from baton_llm_gateway.semantic_cache import SemanticCache
from baton_llm_gateway.served_models import ServedModels
from baton_llm_gateway.settings import Settings
from baton_llm_gateway.target_health import TargetHealth

FLUSH_SECONDS = 10.0


@asynccontextmanager
async def wire(settings: Settings, node: Node, bus: Bus) -> AsyncGenerator[None, None]:
    served = ServedModels(node.clock)
    heartbeats = await bus.subscribe(subjects.REPLICA_ALL, served.on_message)
    inbox = FrameInbox(bus, subjects.frames_of_gateway(node.instance))
    outbox = FrameOutbox(bus, node.instance, node.leases.read_batches, node.last_words)
    books = Books(bus)
    catalog = catalog_of(settings.home)
    connections = Connections(addresses(all_targets(catalog), os.environ))
    cache = ResponseCache(
        node.clock,
        max_bytes=int(settings.cache_max_mb * 1024 * 1024),
        ttl_seconds=settings.cache_ttl_seconds,
    )
    embedder = EmbedderClient(bus, node.clock, settings.semantic_embed_seconds)
    gateway = Gateway(
        chooser=ModelChooser(
            catalog, served.ready, served.ever_seen, settings.long_question_characters, shipped()
        ),
        recall=Recall(
            cache,
            SemanticCache(cache, embedder.embed, max_bytes=int(settings.semantic_max_mb * 1024 * 1024)),
            CachePolicy(settings.policy_version, settings.cache_sampled),
        ),
        outbox=outbox,
        parts=RelayParts(
            inbox,
            books,
            RelayLimits(settings.max_attempts, settings.stall_seconds),
            Providers(connections, TargetHealth(node.clock), outbox),
        ),
    )
    await inbox.start()
    await outbox.start()
    await connections.start()
    node.add(
        Actor(
            node,
            subject=subjects.GATEWAY_ALL,
            message=GatewayHandoff,
            handle=gateway.handle,
            stop_number=5,
            limits=InboxLimits(concurrency=settings.gateway_concurrency),
        )
    )
    # Every living replica is heard once before the first request asks which models are ready.
    await asyncio.sleep(REPLICA_HEARD_WITHIN_SECONDS)
    yield
    node.books_closed = await books.flush(FLUSH_SECONDS) and node.num_held == 0
    await connections.stop()
    await inbox.stop()
    await outbox.stop()
    await heartbeats.unsubscribe()


def all_targets(catalog: Catalog) -> Iterator[Target]:
    for route in catalog.routes.values():
        yield from route.targets


def check_keys(settings: Settings) -> None:
    """Exits with a sentence for a catalog, or a key that it names, that can't be used."""
    try:
        addresses(all_targets(catalog_or_exit(settings.home)), os.environ)
    except CatalogError as error:
        sys.stderr.write(f"{settings.home / 'catalog.toml'}: {error}\n")
        raise SystemExit(2) from None


def main() -> None:
    settings = load_settings(Settings)
    check_keys(settings)
    run_service("llm_gateway", settings, lambda node, bus: wire(settings, node, bus))


if __name__ == "__main__":
    main()
