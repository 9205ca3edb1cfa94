"""May this request come in: one call before it is handed on, one after its end.

    grant = await admission.admit(tenant, asked, exchange)     raises RequestFailed: 403, 429, 503
    try:
        …                                                      the answer
        await grant.settle(usage, model)                       what it came to
    finally:
        await grant.release()                                  refused further on; nothing after a settle

A key, team and model without a limit cost a look into two dictionaries. Owns the order in which accounts are
asked (key, team, models) and that a refusal at one gives back what the others had let in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from baton_common.catalog import Catalog
from baton_common.errors import BusError, RequestFailed
from baton_common.money import Price
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Usage
from baton_contracts.limits import Run, model_party
from baton_edge_api.exchange import Exchange
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.changes import Outcome
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.guess import TokenGuess
from baton_edge_api.limits.holds import Use
from baton_edge_api.limits.rate_headers import rate_headers
from baton_edge_api.limits.refusal_text import refusal_error
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.standing import Refusal, View
from baton_edge_api.limits.wish import Wish

SETTLE_SECONDS = 0.5
"""How long the end of an answer waits for its settlement to be written; then that goes on behind it. At an
account that is far from its limits it does so at once."""


@dataclass(frozen=True)
class Asked:
    """What a request wants, as far as limits go."""

    model: str
    """As the client named it."""
    count_prompt_tokens: Callable[[], Awaitable[int]]
    """Called only where tokens or money are limited."""
    run: Run
    """Its rows in the ledger, when there are any."""
    max_output_tokens: int | None = None
    """Of one answer, as the client asked; None: it named no bound."""
    num_answers: int = 1
    answered_by: str = ""
    """The model behind that name, where the catalog doesn't know it."""

    @property
    def known_as(self) -> str:
        """What the catalog, with its aliases and prices, can be asked for."""
        return self.answered_by or self.model


@dataclass(frozen=True)
class _Book:
    """What a grant needs to be settled."""

    accounts: Accounts
    catalog: Catalog
    figures: LimitFigures
    outputs: TokenGuess
    """Of one answer."""
    added: TokenGuess
    """What the relay added to a prompt."""


class Grant:
    """What one request holds, in all accounts that it touches. Settled or released once; the first counts."""

    def __init__(self, book: _Book | None, tenant: Tenant, asked: Asked) -> None:
        self._book = book
        self._tenant = tenant
        self._asked = asked
        self._parties: list[str] = []
        self._number = book.accounts.new_grant() if book else 0
        self._num_prompt_tokens = 0
        self.alerts: list[str] = []
        """Parties whose budget's alert this request brought about."""

    @property
    def is_limited(self) -> bool:
        return self._book is not None

    async def reserve(self, parties: tuple[str, ...], wish: Wish) -> list[tuple[str, View]]:
        """Raises _Refused, having given back what was reserved; BusError likewise."""
        assert self._book
        self._num_prompt_tokens = wish.num_prompt_tokens
        run = self._asked.run.name
        views: list[tuple[str, View]] = []
        try:
            for party in parties:
                self._parties.append(party)
                outcome = await self._book.accounts.reserve(party, self._number, wish, run)
                if isinstance(outcome.result, Refusal):
                    raise _Refused(party, outcome.result, await self._given_back())
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
        if self._book:
            for party in self._parties:
                self._book.accounts.free_seat(party, self._number)

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
        book, parties = self._book, self._take_parties()
        if not book or not parties:
            return
        num_prompt_tokens = usage.prompt_tokens + round(uncounted * self._num_prompt_tokens)
        num_tokens = (num_prompt_tokens or self._num_prompt_tokens) + usage.completion_tokens
        picos = book.catalog.price_of(model).cost(usage if charged is None else charged)
        use = Use(num_tokens, picos, is_all)
        others = {model_party(name) for name in book.catalog.may_stand_for(self._asked.model)}
        others -= {model_party(model), model_party(self._asked.model)}
        waits: list[asyncio.Future[Outcome]] = []
        for party in parties:
            can_wait = book.accounts.has_room(party)
            done = self._settle_at(book, party, None if party in others else use, can_wait)
            if not can_wait:
                waits.append(done)
        book.figures.settled.inc()
        book.figures.used(num_tokens)
        if usage.completion_tokens:
            each = usage.completion_tokens // max(1, self._asked.num_answers)
            book.outputs.learn(self._tenant.key_id, max(1, each))
        if usage.prompt_tokens and self._num_prompt_tokens and not uncounted:
            book.added.learn(self._tenant.key_id, max(0, usage.prompt_tokens - self._num_prompt_tokens))
        if waits:
            await asyncio.wait(waits, timeout=SETTLE_SECONDS)

    async def release(self, *, may_cost: bool = False) -> None:
        """It was refused further on: as if it had never been. `may_cost`: it was lost there, and the ledger
        may have something of it all the same."""
        if self._book and (waits := self._give_back(may_cost=may_cost)):
            self._book.figures.released.inc()
            await asyncio.wait(waits, timeout=SETTLE_SECONDS)

    def _settle_at(self, book: _Book, party: str, use: Use | None, can_wait: bool) -> asyncio.Future[Outcome]:
        if use is None:
            return book.accounts.release(party, self._number, can_wait=can_wait)
        done = book.accounts.settle(party, self._number, use, can_wait=can_wait)
        done.add_done_callback(lambda future: self._look_for_alert(book, party, future))
        return done

    def _look_for_alert(self, book: _Book, party: str, done: asyncio.Future[Outcome]) -> None:
        if done.cancelled() or done.exception() or not done.result().alert:
            return
        self.alerts.append(party)
        book.figures.alert(party, done.result().view)

    def _give_back(self, *, may_cost: bool = False) -> list[asyncio.Future[Outcome]]:
        book, parties = self._book, self._take_parties()
        if not book or not parties:
            return []
        return [book.accounts.release(party, self._number, may_cost=may_cost) for party in parties]

    def _take_parties(self) -> list[str]:
        parties, self._parties = self._parties, []
        return parties


class _Refused(Exception):
    def __init__(self, party: str, refusal: Refusal, views: list[tuple[str, View]]) -> None:
        super().__init__(refusal.kind)
        self.party = party
        self.refusal = refusal
        self.views = views


class Admission:
    def __init__(
        self,
        rules: RuleBook,
        accounts: Accounts,
        catalog: Catalog,
        figures: LimitFigures,
        models_of_key: Callable[[str], frozenset[str]],
        *,
        answer_bound: int | None = None,
    ) -> None:
        """`models_of_key` gets a key id; empty: the key may ask for all. `answer_bound`: tokens of an answer
        whose client named no bound; None: as the catalog says of its model."""
        self._answer_bound = answer_bound
        self._rules = rules
        self._models_of_key = models_of_key
        self._book = _Book(accounts, catalog, figures, TokenGuess(), TokenGuess())

    async def admit(self, tenant: Tenant, asked: Asked, exchange: Exchange) -> Grant:
        """Raises RequestFailed: 403 for a model that the key may not use, 429 over a limit, 503 when nobody
        can say. Adds what is left to the headers of the answer, whatever it becomes."""
        self.check_model(tenant, asked.model)
        if not self._rules.synced:
            raise _not_known("The limits are not loaded yet. Try again shortly.")
        parties = self._parties(tenant, asked)
        if not parties:
            return Grant(None, tenant, asked)
        grant = Grant(self._book, tenant, asked)
        wish = await self._wish(tenant, parties, asked)
        try:
            views = await grant.reserve(parties, wish)
        except _Refused as refused:
            raise self._refuse(refused, exchange) from None
        except BusError as error:
            self._book.figures.refused(parties[0], "bus")
            raise _not_known(f"The limits can't be checked now ({error}). Try again shortly.") from error
        exchange.headers.extend(rate_headers(views))
        self._book.figures.admitted.inc()
        self._book.figures.reserved(wish.num_prompt_tokens + wish.num_output_tokens)
        return grant

    def check_model(self, tenant: Tenant, model: str) -> None:
        allowed = self._models_of_key(tenant.key_id)
        if allowed and model not in allowed:
            text = f"This API key may not use the model {model[:64]!r}, but: {', '.join(sorted(allowed))}."
            raise RequestFailed.because("permission_denied", text, param="model")

    def tokenizer_of(self, model: str) -> str | None:
        """The model that counts, where a name stands for several; None where only other servers have it."""
        catalog = self._book.catalog
        likely = catalog.may_stand_for(model)[0]
        return likely if any(target.is_local for target in catalog.route(likely).targets) else None

    def show(self, tenant: Tenant, exchange: Exchange) -> None:
        """The headers of an answer to a request that never came so far as to be admitted: as last seen."""
        parties = self._rules.parties(tenant, ())
        seen = [(party, self._book.accounts.view(party)) for party in parties]
        exchange.headers.extend(rate_headers([(party, view) for party, view in seen if view]))

    def _parties(self, tenant: Tenant, asked: Asked) -> tuple[str, ...]:
        names = dict.fromkeys((asked.model, *self._book.catalog.may_stand_for(asked.known_as)))
        return self._rules.parties(tenant, tuple(names))

    async def _wish(self, tenant: Tenant, parties: tuple[str, ...], asked: Asked) -> Wish:
        rules = [self._rules.rule(party) for party in parties]
        if all(rule.tokens_per_minute is None and rule.budget is None for rule in rules):
            return Wish(0, 0)
        num_prompt_tokens = await asked.count_prompt_tokens()
        each = asked.max_output_tokens
        if each is None:
            most = self._answer_bound or self._book.catalog.answer_bound(asked.known_as)
            each = max(1, min(most, self._book.outputs.tokens(tenant.key_id, most)))
        return Wish(
            num_prompt_tokens,
            each * asked.num_answers,
            self._dearest(asked.known_as),
            may_shrink=asked.max_output_tokens is None,
            num_added_tokens=self._book.added.tokens(tenant.key_id, 0),
        )

    def _dearest(self, model: str) -> Price:
        """Of those that may answer."""
        catalog = self._book.catalog
        prices = [catalog.price_of(name) for name in catalog.may_stand_for(model)]
        return Price(
            max(price.input for price in prices),
            max(price.cached_input for price in prices),
            max(price.output for price in prices),
        )

    def _refuse(self, refused: _Refused, exchange: Exchange) -> RequestFailed:
        self._book.figures.refused(refused.party, refused.refusal.kind)
        exchange.headers.extend(rate_headers(refused.views))
        if refused.refusal.can_never_fit and refused.refusal.kind != "budget":
            exchange.headers.append((b"x-should-retry", b"false"))
        return refusal_error(refused.party, refused.refusal)


def _not_known(text: str) -> RequestFailed:
    return RequestFailed(
        ErrorBody(code="bus_unavailable", message=text, stop="edge_api", retry_after_seconds=1)
    )
