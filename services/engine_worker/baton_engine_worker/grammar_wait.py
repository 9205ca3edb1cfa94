"""Waiting for a request's grammar, which takes nobody else's time and which its client may end.

Most grammars are ready at once or in milliseconds. One that takes longer is waited for behind the
acknowledgement: else the router would take this replica for stuck. Whatever ends the wait early cancels this
request's future; the engine decides what that means for a compilation which others may wait for too.
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
        long prompt is read before), it will end as it begins, or at the `check`."""
        if not self._given_up.done():
            self._given_up.set_result(None)
        return self._waits

    def check(self) -> None:
        """Raises GivenUp if it was: the last look before the engine gets the request."""
        if self._given_up.done():
            raise GivenUp

    async def until_ready(self, grammar: Future[Any], when_it_takes_long: Callable[[], None]) -> Any:
        """The grammar. Raises what the grammar's future raises, or GivenUp."""
        ready = asyncio.wrap_future(grammar)
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
            if not ready.cancel() and not ready.cancelled():
                ready.exception()  # nobody may ask for it after this; asyncio would complain of that
        self.check()
        return ready.result()
