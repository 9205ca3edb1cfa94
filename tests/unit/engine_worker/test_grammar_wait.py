"""A cancel that comes while a long prompt is still being read is not forgotten; whatever ends the wait ends
the interest in the grammar."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from baton_engine_worker.grammar_wait import GivenUp, GrammarWait


async def test_given_up_before_the_wait_begins_it_ends_at_once() -> None:
    wait, never_ready = GrammarWait(), Future[Any]()
    assert not wait.give_up()  # nobody waits yet: the caller has to see to the engine itself
    with pytest.raises(GivenUp):
        wait.check()
    with pytest.raises(GivenUp):
        await wait.until_ready(never_ready, lambda: pytest.fail("it did not take long"))
    await asyncio.sleep(0)
    assert never_ready.cancelled()


async def test_given_up_or_cancelled_in_the_wait_the_grammar_is_wanted_no_more() -> None:
    waits, futures = (GrammarWait(), GrammarWait()), (Future[Any](), Future[Any]())
    waiting = [
        asyncio.create_task(wait.until_ready(future, lambda: None))
        for wait, future in zip(waits, futures, strict=True)
    ]
    await asyncio.sleep(0)
    waiting[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting[0]
    assert waits[1].give_up()
    with pytest.raises(GivenUp):
        await waiting[1]
    await asyncio.sleep(0)
    assert all(future.cancelled() for future in futures)


async def test_a_grammar_that_is_ready_is_given() -> None:
    ready = Future[Any]()
    ready.set_result("grammar")
    assert await GrammarWait().until_ready(ready, lambda: None) == "grammar"
