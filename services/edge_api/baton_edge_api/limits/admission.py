"""May this request come in: one call before it is handed on, one after its end.

    grant = await admission.admit(tenant, asked, exchange)     raises RequestFailed: 403, 429, 503
    try:
        …                                                      the answer
        await grant.settle(usage, model)                       what it came to
    finally:
        await grant.release()                                  refused further on; nothing after a settle

A key, team and model without a limit cost a look into two dictionaries. Owns who is asked (key, team,
models), what a request may use at most, and how a refusal is told; `grant.py` has what it then holds.
"""

from __future__ import annotations

from collections.abc import Callable

from baton_common.catalog import Catalog
from baton_common.errors import BusError, RequestFailed
from baton_common.money import FREE, Price
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_edge_api.exchange import Exchange
from baton_edge_api.limits.accounts import Accounts
from baton_edge_api.limits.asked import Asked
from baton_edge_api.limits.figures import LimitFigures
from baton_edge_api.limits.grant import Bookkeeping, Grant, Refused
from baton_edge_api.limits.guess import TokenGuess
from baton_edge_api.limits.rate_headers import rate_headers
from baton_edge_api.limits.refusal_text import refusal_error
from baton_edge_api.limits.rules import RuleBook
from baton_edge_api.limits.wish import Wish


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
        self._books = Bookkeeping(accounts, catalog, figures, TokenGuess(), TokenGuess())

    async def admit(self, tenant: Tenant, asked: Asked, exchange: Exchange) -> Grant:
        """Raises RequestFailed: 403 for a model that the key may not use, 429 over a limit, 503 when nobody
        can say. Adds what is left to the headers of the answer, whatever it becomes."""
        self.check_model(tenant, asked.model)
        if not self._rules.synced:
            raise _not_known("The limits are not loaded yet. Try again shortly.")
        parties = self._parties(tenant, asked)
        if not parties:
            return Grant(None, tenant, asked)
        grant = Grant(self._books, tenant, asked)
        wish = await self._wish(tenant, parties, asked)
        try:
            views = await grant.reserve(parties, wish)
        except Refused as refused:
            raise self._refuse(refused, exchange) from None
        except BusError as error:
            self._books.figures.refused(parties[0], "bus")
            raise _not_known(f"The limits can't be checked now ({error}). Try again shortly.") from error
        exchange.headers.extend(rate_headers(views))
        self._books.figures.admitted.inc()
        self._books.figures.reserved(wish.num_prompt_tokens + wish.num_output_tokens)
        return grant

    def check_model(self, tenant: Tenant, model: str) -> None:
        allowed = self._models_of_key(tenant.key_id)
        if allowed and model not in allowed:
            text = f"This API key may not use the model {model[:64]!r}, but: {', '.join(sorted(allowed))}."
            raise RequestFailed.because("permission_denied", text, param="model")

    def tokenizer_of(self, model: str) -> str | None:
        """The model that counts, where a name stands for several; None where only other servers have it."""
        catalog = self._books.catalog
        likely = catalog.may_stand_for(model)[0]
        return likely if any(target.is_local for target in catalog.route(likely).targets) else None

    def show(self, tenant: Tenant, exchange: Exchange) -> None:
        """The headers of an answer to a request that never came so far as to be admitted: as last seen."""
        parties = self._rules.parties(tenant, ())
        seen = [(party, self._books.accounts.view(party)) for party in parties]
        exchange.headers.extend(rate_headers([(party, view) for party, view in seen if view]))

    def _parties(self, tenant: Tenant, asked: Asked) -> tuple[str, ...]:
        names = dict.fromkeys((asked.model, *self._books.catalog.may_stand_for(asked.known_as)))
        return self._rules.parties(tenant, tuple(names))

    async def _wish(self, tenant: Tenant, parties: tuple[str, ...], asked: Asked) -> Wish:
        rules = [self._rules.rule(party) for party in parties]
        if all(rule.tokens_per_minute is None and rule.budget is None for rule in rules):
            return Wish(0, 0)
        num_prompt_tokens = await asked.count_prompt_tokens()
        each = asked.max_output_tokens
        if each is None:
            most = self._answer_bound or self._books.catalog.answer_bound(asked.known_as)
            each = max(1, min(most, self._books.outputs.tokens(tenant.key_id, most)))
        return Wish(
            num_prompt_tokens,
            each * asked.num_answers,
            self._dearest(asked.known_as) if any(rule.budget for rule in rules) else FREE,
            may_shrink=asked.max_output_tokens is None,
            num_added_tokens=self._books.added.tokens(tenant.key_id, 0),
        )

    def _dearest(self, model: str) -> Price:
        """Of those that may answer."""
        catalog = self._books.catalog
        prices = [catalog.price_of(name) for name in catalog.may_stand_for(model)]
        return Price(
            max(price.input for price in prices),
            max(price.cached_input for price in prices),
            max(price.output for price in prices),
        )

    def _refuse(self, refused: Refused, exchange: Exchange) -> RequestFailed:
        self._books.figures.refused(refused.party, refused.refusal.kind)
        exchange.headers.extend(rate_headers(refused.views))
        if refused.refusal.can_never_fit and refused.refusal.kind != "budget":
            exchange.headers.append((b"x-should-retry", b"false"))
        return refusal_error(refused.party, refused.refusal)


def _not_known(text: str) -> RequestFailed:
    return RequestFailed(
        ErrorBody(code="bus_unavailable", message=text, stop="edge_api", retry_after_seconds=1)
    )
