"""Waiting for a request's grammar, which takes nobody else's time and which its client may end.

Most grammars are ready at once or in milliseconds. One that takes longer is waited for behind the
acknowledgement: else the router would take this replica for stuck.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

SECONDS_BEFORE_THE_ACK = 0.75
"""About half of what the router allows for the whole acknowledgement."""


class GivenUp(Exception):
    """The request was cancelled before its grammar was ready: the engine never saw it."""


class GrammarWait:
    def __init__(self) -> None:
        self._given_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waits = False

    def give_up(self) -> bool:
        """False if nobody waits now: the engine may have the request already. If the wait is still to come (a
        long prompt is read before), it will end as it begins."""
        if not self._given_up.done():
            self._given_up.set_result(None)
        return self._waits

    async def until_ready(self, grammar: Future[Any], when_it_takes_long: Callable[[], None]) -> Any:
        """The grammar. Raises what the grammar's future raises, or GivenUp."""
        ready = asyncio.wrap_future(grammar)
        ready.add_done_callback(_has_been_seen)
        either = (ready, self._given_up)
        self._waits = True
        try:
            done, _ = await asyncio.wait(
                either, timeout=SECONDS_BEFORE_THE_ACK, return_when=asyncio.FIRST_COMPLETED
            )
            if not done:
                when_it_takes_long()
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waits = False
        if self._given_up.done():
            raise GivenUp
        return ready.result()


def _has_been_seen(ready: asyncio.Future[Any]) -> None:
    """Of a request that was given up nobody asks for the outcome: asyncio would complain of it."""
    if not ready.cancelled():
        ready.exception()
