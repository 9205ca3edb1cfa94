"""A cancel that comes while a long prompt is still being read is not forgotten."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from baton_engine_worker.grammar_wait import GivenUp, GrammarWait


async def test_given_up_before_the_wait_begins_it_ends_at_once() -> None:
    wait, never_ready = GrammarWait(), Future[Any]()
    assert not wait.give_up()  # nobody waits yet: the caller has to see to the engine itself
    with pytest.raises(GivenUp):
        await wait.until_ready(never_ready, lambda: pytest.fail("it did not take long"))


async def test_a_grammar_that_is_ready_is_given() -> None:
    ready = Future[Any]()
    ready.set_result("grammar")
    assert await GrammarWait().until_ready(ready, lambda: None) == "grammar"
