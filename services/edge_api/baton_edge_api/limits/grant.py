"""What one request holds, in all accounts that it touches, until it is settled or released.

Owns that accounts are asked in their order, and that a refusal at one gives back what the others had let in.
Knows nothing of who is asked, nor of what is said to who may not come in.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from baton_common.catalog import Catalog
from baton_contracts.envelope import Tenant
from baton_contracts.frames import Usage
from baton_contracts.limits import model_party
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.asked import Asked
from baton_edge_api.limits.changes import Outcome
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.guess import TokenGuess
from baton_edge_api.limits.holds import Use
from baton_edge_api.limits.standing import Refusal, View
from baton_edge_api.limits.wish import Wish

SETTLE_SECONDS = 0.5
"""How long the end of an answer waits for its settlement to be written; then that goes on behind it. At an
account that is far from its limits it does so at once."""


@dataclass(frozen=True)
class Bookkeeping:
    """What a grant needs to be settled."""

    accounts: Accounts
    catalog: Catalog
    figures: LimitFigures
    outputs: TokenGuess
    """Of one answer."""
    added: TokenGuess
    """What the relay added to a prompt."""


class Refused(Exception):
    def __init__(self, party: str, refusal: Refusal, views: list[tuple[str, View]]) -> None:
        super().__init__(refusal.kind)
        self.party = party
        self.refusal = refusal
        self.views = views


class Grant:
    """What one request holds, in all accounts that it touches. Settled or released once; the first counts."""

    def __init__(self, books: Bookkeeping | None, tenant: Tenant, asked: Asked) -> None:
        self._books = books
        self._tenant = tenant
        self._asked = asked
        self._parties: list[str] = []
        self._number = books.accounts.new_grant() if books else 0
        self._num_prompt_tokens = 0
        self.alerts: list[str] = []
        """Parties whose budget's alert this request brought about."""

    @property
    def is_limited(self) -> bool:
        return self._books is not None

    async def reserve(self, parties: tuple[str, ...], wish: Wish) -> list[tuple[str, View]]:
        """Raises Refused, having given back what was reserved; BusError likewise."""
        assert self._books
        self._num_prompt_tokens = wish.num_prompt_tokens
        run = self._asked.run.name
        views: list[tuple[str, View]] = []
        try:
            for party in parties:
                self._parties.append(party)
                outcome = await self._books.accounts.reserve(party, self._number, wish, run)
                self._look_for_alert(party, outcome)
                if isinstance(outcome.result, Refusal):
                    raise Refused(party, outcome.result, await self._given_back())
                views.append((party, outcome.view))
        finally:
            if len(views) < len(parties):
                self._give_back()
        return views

    async def _given_back(self) -> list[tuple[str, View]]:
        parties = list(self._parties)
        waits = self._give_back()
        await asyncio.wait(waits, timeout=SETTLE_SECONDS)
        return [
            (party, wait.result().view) for party, wait in zip(parties, waits, strict=True) if wait.done()
        ]

    def free_seat(self) -> None:
        """Ahead of the rest: the client is gone, and may be back before the engine has said what it used."""
        if self._books:
            for party in self._parties:
                self._watch(party, self._books.accounts.free_seat(party, self._number))

    async def settle(
        self,
        usage: Usage,
        model: str,
        charged: Usage | None = None,
        *,
        uncounted: float = 0.0,
        is_all: bool = True,
    ) -> None:
        """`model` answered; accounts of others that might have are given back. `charged`: what of it costs
        money, if not all: what came from a cache doesn't. `uncounted`: the part of several prompts that the
        engine did not count. `is_all` False: the end was not heard, and the ledger may have more.

        Where the engine's count of the prompt did not come, money is as in the ledger; the limit of tokens
        keeps the prompt as it was counted on entry: it protects, it is no bill."""
        books, parties = self._books, self._take_parties()
        if not books or not parties:
            return
        num_prompt_tokens = usage.prompt_tokens + round(uncounted * self._num_prompt_tokens)
        num_tokens = (num_prompt_tokens or self._num_prompt_tokens) + usage.completion_tokens
        picos = books.catalog.price_of(model).cost(usage if charged is None else charged)
        use = Use(num_tokens, picos, is_all)
        others = {model_party(name) for name in books.catalog.may_stand_for(self._asked.known_as)}
        others -= {model_party(model), model_party(self._asked.model)}
        waits: list[asyncio.Future[Outcome]] = []
        for party in parties:
            can_wait = books.accounts.has_room(party)
            if party in others:
                done = books.accounts.release(party, self._number, may_cost=not is_all, can_wait=can_wait)
            else:
                done = books.accounts.settle(party, self._number, use, can_wait=can_wait)
            self._watch(party, done)
            if not can_wait:
                waits.append(done)
        books.figures.settled.inc()
        books.figures.used(num_tokens)
        if usage.completion_tokens:
            each = usage.completion_tokens // max(1, self._asked.num_answers)
            books.outputs.learn(self._tenant.key_id, max(1, each))
        if usage.prompt_tokens and self._num_prompt_tokens and not uncounted:
            books.added.learn(self._tenant.key_id, max(0, usage.prompt_tokens - self._num_prompt_tokens))
        if waits:
            await asyncio.wait(waits, timeout=SETTLE_SECONDS)

    async def release(self, *, may_cost: bool = False) -> None:
        """It was refused further on: as if it had never been. `may_cost`: it was lost there, and the ledger
        may have something of it all the same."""
        if self._books and (waits := self._give_back(may_cost=may_cost)):
            self._books.figures.released.inc()
            await asyncio.wait(waits, timeout=SETTLE_SECONDS)

    def _give_back(self, *, may_cost: bool = False) -> list[asyncio.Future[Outcome]]:
        books, parties = self._books, self._take_parties()
        if not books:
            return []
        releases = (
            (party, books.accounts.release(party, self._number, may_cost=may_cost)) for party in parties
        )
        return [self._watch(party, done) for party, done in releases]

    def _watch(self, party: str, done: asyncio.Future[Outcome]) -> asyncio.Future[Outcome]:
        def look(done: asyncio.Future[Outcome]) -> None:
            if not done.cancelled() and not done.exception():
                self._look_for_alert(party, done.result())

        done.add_done_callback(look)
        return done

    def _look_for_alert(self, party: str, outcome: Outcome) -> None:
        """Whatever changes the account may be what finds it due: a recount or a lower budget came before."""
        if outcome.alert and self._books:
            self.alerts.append(party)
            self._books.figures.alert(party, outcome.view)

    def _take_parties(self) -> list[str]:
        parties, self._parties = self._parties, []
        return parties
