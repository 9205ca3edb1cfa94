"""Wiring of after_answer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from baton_after_answer.actor import BooksDesk
from baton_after_answer.barrier import CommitBarrier
from baton_after_answer.books import Books, cause_of
from baton_after_answer.consumer import Consumer
from baton_after_answer.courtesy import Courtesy
from baton_after_answer.database import migrate, open_engine
from baton_after_answer.pull import PullInbox
from baton_after_answer.queue_setup import CONSUMER, ensure_queue
from baton_after_answer.retention import forget_old
from baton_after_answer.settings import Settings
from baton_common.catalog import catalog_of, catalog_or_exit
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_common.responder import Responder
from baton_common.service import Wire, run_service
from baton_common.settings import load_settings
from baton_contracts import subjects
from baton_contracts.permissions import inbox_prefix
from baton_contracts.queries import BooksQuery, BooksReply

_DATABASE_RETRY_SECONDS = 1.0


def wire(settings: Settings) -> Wire:
    @asynccontextmanager
    async def wired(node: Node, bus: NatsBus) -> AsyncGenerator[None]:
        in_thread = _one_thread("books")
        in_sums_thread = _one_thread("books-sums")  # what takes long keeps no row waiting
        make_queue = functools.partial(ensure_queue, bus, settings.after_ack_wait_seconds)
        await make_queue()
        engine = open_engine(settings.resolved_database_url())
        await _bring_up_to_date(node, engine)
        barrier = CommitBarrier(bus, settings.books_barrier_seconds)
        courtesy = Courtesy(lambda: barrier.is_asked)
        books = Books(engine, courtesy.few_at_a_time)
        inbox = PullInbox(
            bus,
            stream=subjects.STREAM_AFTER,
            consumer=CONSUMER,
            inbox_prefix=inbox_prefix(settings.nats_user or node.service),
            batch=settings.after_batch,
        )
        consumer = Consumer(
            inbox,
            instance=node.instance,
            clock=node.clock,
            write=lambda entry: in_thread(books.write, entry),
            publish_spans=node.span_post.send,
            asked=barrier.asked,
            on_commit=barrier.note_commit,
            courtesy=courtesy,
            ensure_queue=make_queue,
            retry_seconds=settings.after_retry_seconds,
            price_of=catalog_of(settings.home).price_of,
        )
        desk = BooksDesk(
            books,
            barrier=barrier.wait,
            in_thread=in_thread,
            in_sums_thread=in_sums_thread,
            clock=node.clock,
        )
        node.add(
            Responder(
                node,
                subject=subjects.BOOKS_ALL,
                query=BooksQuery,
                reply=BooksReply,
                answer=desk.answer,
            )
        )
        await inbox.start()
        node.supervise("the AFTER queue", consumer.run)
        node.supervise(
            "old responses",
            lambda: forget_old(
                lambda before: in_thread(books.forget_responses, before),
                days=settings.responses_days,
                clock=node.clock,
                sleep=asyncio.sleep,
            ),
        )
        try:
            yield
        finally:
            await consumer.stop()
            engine.dispose()

    return wired


def _one_thread(name: str) -> Callable[..., Awaitable[Any]]:
    """Runs what blocks, one after another."""
    return functools.partial(
        asyncio.get_running_loop().run_in_executor, ThreadPoolExecutor(1, thread_name_prefix=name)
    )


async def _bring_up_to_date(node: Node, engine: Engine) -> None:
    """Migrations; a database that is not there yet is waited for."""
    while True:
        try:
            await asyncio.to_thread(migrate, engine)
        except DBAPIError as error:
            node.log.warning("waiting for the database: %s", cause_of(error))
            await asyncio.sleep(_DATABASE_RETRY_SECONDS)
        else:
            return


def main() -> None:
    settings = load_settings(Settings)
    catalog_or_exit(settings.home)
    run_service("after_answer", settings, wire(settings), is_bookkeeping=True)


if __name__ == "__main__":
    main()
