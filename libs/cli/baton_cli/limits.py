"""Limits of teams and models, and what everybody has used: the bucket `baton_limits` as the operator sees it.

Rules are written here; what was used is the edges', but for a recount from the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import nats.js.errors
from nats.aio.client import Client
from nats.js.kv import KeyValue

from baton_cli.errors import CliError
from baton_common.buckets import open_bucket, read_bucket
from baton_common.money import NotMoney, dollars, parse_dollars
from baton_common.spending import Payer, spent_in_ledger
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.identifiers import new_request_id
from baton_contracts.limits import (
    RULES,
    AccountState,
    Budget,
    BudgetPeriod,
    LimitRule,
    period_name,
    rule_entry,
    use_entry,
)
from baton_contracts.queries import BooksQuery, BooksReply

_TRIES = 20
NOTHING = "none"


@dataclass(frozen=True)
class Options:
    """As typed: None was not named, `none` takes a limit away."""

    rpm: str | None = None
    tpm: str | None = None
    concurrent: str | None = None
    budget: str | None = None
    period: BudgetPeriod | None = None
    alert: int | None = None
    typed_at: float | None = None
    """Unix time in seconds; None: whose limits they are is new, and has spent nothing."""

    def change(self, rule: LimitRule) -> LimitRule:
        """Raises CliError."""
        return LimitRule(
            requests_per_minute=_count("--rpm", self.rpm, rule.requests_per_minute),
            tokens_per_minute=_count("--tpm", self.tpm, rule.tokens_per_minute),
            concurrent=_count("--concurrent", self.concurrent, rule.concurrent),
            budget=self._budget(rule.budget),
        )

    def _budget(self, budget: Budget | None) -> Budget | None:
        if self.budget == NOTHING:
            return None
        if self.budget is None and budget is None:
            if self.period or self.alert:
                raise CliError("--period and --alert are a budget's: name one with --budget.")
            return None
        try:
            picos = budget.picos if self.budget is None and budget else parse_dollars(self.budget or "")
        except NotMoney as error:
            raise CliError(f"--budget {error}.") from None
        before = budget or Budget(picos=0)
        return Budget(
            picos=picos,
            period=self.period or before.period,
            alert_percent=self.alert or before.alert_percent,
            set_at=budget.set_at if budget else self.typed_at,
        )


def _count(option: str, text: str | None, before: int | None) -> int | None:
    if text is None:
        return before
    if text == NOTHING:
        return None
    if not (text.isascii() and text.isdigit()):
        raise CliError(f"{option} takes a whole number, or `none` for no limit, not {text!r}.")
    return int(text)


class LimitBook:
    def __init__(self, bucket: KeyValue, client: Client, now: Callable[[], float] = time.time) -> None:
        self._bucket = bucket
        self._client = client
        self._now = now

    async def rules(self) -> dict[str, LimitRule]:
        """By party, of teams and models."""
        found: dict[str, LimitRule] = {}
        async for entry in read_bucket(self._client.jetstream(), subjects.BUCKET_LIMITS, RULES):
            found[entry.name.removeprefix(rule_entry(""))] = _decode_rule(entry.name, entry.value or b"")
        return dict(sorted(found.items()))

    async def change(self, party: str, change: Callable[[LimitRule], LimitRule]) -> LimitRule:
        """Of two who change it at once both are heard. Raises CliError."""
        while True:
            value, revision = await self._get(rule_entry(party))
            rule = change(_decode_rule(party, value) if value else LimitRule())
            try:
                await self._bucket.update(rule_entry(party), rule.encode(), last=revision)
            except nats.js.errors.KeyWrongLastSequenceError:
                continue
            return rule

    async def remove(self, party: str) -> None:
        """Raises CliError if it has none."""
        value, _ = await self._get(rule_entry(party))
        if not value:
            raise CliError("It has no limits: `baton limits list` shows those that have.")
        await self._bucket.delete(rule_entry(party))

    async def use(self, party: str) -> AccountState:
        return (await self._read(party))[0]

    async def recount(self, party: str, rule: LimitRule, payer: Payer) -> tuple[int, int]:
        """Puts what the ledger says in the place of what edges counted. Returns both, in pico-dollars. Raises
        CliError."""
        if rule.budget is None:
            raise CliError("It has no budget to recount.")
        now = self._now()
        period = period_name(rule.budget.period, now)
        for _ in range(_TRIES):
            state, revision = await self._read(party)
            before = state.spent_picos if state.period == period else 0
            spent = await spent_in_ledger(self._ask, payer, state, rule.budget.period, now)
            late = state.late_in(period)
            changes = {"spent_picos": spent, "period": period, "alerted": False, "late": late}
            new = state.model_copy(update=changes)
            try:
                await self._bucket.update(use_entry(party), new.encode(), last=revision)
            except nats.js.errors.KeyWrongLastSequenceError:
                continue
            return before, spent
        raise CliError("Others write it all the time. Try again at a quieter moment.")

    async def _read(self, party: str) -> tuple[AccountState, int]:
        """One that can't be read begins anew, as it does for the edges."""
        value, revision = await self._get(use_entry(party))
        try:
            return AccountState.decode(value) if value else AccountState(), revision
        except MalformedMessage:
            return AccountState(), revision

    async def _get(self, entry: str) -> tuple[bytes, int]:
        """The value (empty: there is none) and its revision."""
        try:
            found = await self._bucket.get(entry)
        except nats.js.errors.KeyDeletedError as error:
            return b"", (error.entry.revision or 0) if error.entry else 0
        except nats.js.errors.KeyNotFoundError:
            return b"", 0
        return found.value or b"", found.revision or 0

    async def _ask(self, query: BooksQuery) -> BooksReply:
        answer = await self._client.request(subjects.books(new_request_id()), query.encode(), timeout=10)
        reply = BooksReply.decode(answer.data)
        if reply.error:
            raise CliError(reply.error.message)
        return reply


async def limit_book(client: Client) -> LimitBook:
    return LimitBook(await open_bucket(client.jetstream(), subjects.BUCKET_LIMITS), client)


def _decode_rule(name: str, value: bytes) -> LimitRule:
    try:
        return LimitRule.decode(value)
    except MalformedMessage as error:
        raise CliError(f"The limits of {name} can't be read: {error}. Set them anew.") from error


def rule_text(rule: LimitRule) -> str:
    """`60/min · 10000 tokens/min · 4 at once · $5.00 a month`."""
    parts = [
        "" if rule.requests_per_minute is None else f"{rule.requests_per_minute}/min",
        "" if rule.tokens_per_minute is None else f"{rule.tokens_per_minute} tokens/min",
        "" if rule.concurrent is None else f"{rule.concurrent} at once",
        "" if rule.budget is None else f"${dollars(rule.budget.picos)} {_each(rule.budget.period)}",
    ]
    return " · ".join(filter(None, parts)) or "none"


def _each(period: BudgetPeriod) -> str:
    return "in total" if period == "total" else f"a {period}"


def use_text(rule: LimitRule, state: AccountState, now: float) -> str:
    """What is used of it now."""
    is_open = state.window_left(now) > 0
    parts = [
        "" if rule.requests_per_minute is None else f"{state.requests if is_open else 0}",
        "" if rule.tokens_per_minute is None else f"{state.tokens if is_open else 0} tokens",
        "" if rule.concurrent is None else f"{state.seats} at once",
        "" if rule.budget is None else f"${dollars(_spent(rule.budget, state, now))}",
    ]
    return " · ".join(filter(None, parts))


def _spent(budget: Budget, state: AccountState, now: float) -> int:
    return state.spent_picos if state.period == period_name(budget.period, now) else 0
