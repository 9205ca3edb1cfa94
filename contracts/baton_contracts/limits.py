"""Limits and what was used of them, as they lie in the bucket `baton_limits`.

A party is who is limited: a key, a team of a tenant, a model. `rule.PARTY` says how (a key's rule is in its
entry of `baton_keys`), `use.PARTY` how much it has used; only edges write that, with compare-and-set.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel
from baton_contracts.identifiers import name_of_token, request_ids_of, subject_token

BudgetPeriod = Literal["day", "month", "total"]

WINDOW_SECONDS = 60.0
RULES = "rule.>"
"""Watched by edges; the far more frequent changes of use are not."""
USES = "use.>"


class Budget(WireModel):
    picos: int = Field(ge=0, lt=2**63, description="Pico-dollars (10⁻¹² USD) a period.")
    period: BudgetPeriod = Field(default="month", description="Days and months are UTC's.")
    alert_percent: int = Field(default=80, ge=1, le=100, description="Spent share that is told.")
    set_at: float | None = Field(
        default=None, description="Unix time in seconds: where there was none before, perhaps after spending."
    )


class LimitRule(WireModel):
    """What is None is not limited."""

    requests_per_minute: int | None = Field(default=None, ge=0)
    tokens_per_minute: int | None = Field(default=None, ge=0, description="Prompt and answer together.")
    concurrent: int | None = Field(default=None, ge=0, description="Requests under way.")
    budget: Budget | None = None

    @property
    def is_empty(self) -> bool:
        limits = (self.requests_per_minute, self.tokens_per_minute, self.concurrent, self.budget)
        return all(limit is None for limit in limits)


class Slot(WireModel):
    """What requests at one edge hold. Written by that edge as a whole, so it mends itself. Once its lease is
    lost, any other frees its seats, then settles its runs with what the ledger says of them and takes it out.
    """

    seq: int = Field(default=0, ge=0, description="Of the edge's last write, so that it knows it landed.")
    seats: int = Field(default=0, ge=0)
    held_picos: int = Field(default=0, ge=0, description="Reserved and not yet spent.")
    window_start: float = Field(default=0.0, description="The window in which `runs` hold their tokens.")
    runs: dict[str, int] = Field(
        default_factory=dict[str, int],
        description="Requests whose tokens or money are still to be settled, as `Run.name` has them, with "
        "the tokens that each has reserved in that window.",
    )


class LateRun(WireModel):
    """A request that was settled without its last ledger row, which may come yet."""

    picos: int = Field(default=0, ge=0, description="What of it is in `spent_picos`.")
    since: float = Field(description="Unix time in seconds: when it was settled.")


class Doubt(WireModel):
    """The ledger may have spending that `spent_picos` lacks."""

    since: float = Field(description="Unix time in seconds.")
    look_at: float = Field(description="Unix time in seconds: when an edge asks the ledger for all of it.")


class AccountState(WireModel):
    """`use.PARTY`. A window begins with its first request and ends WINDOW_SECONDS later."""

    window_start: float = Field(default=0.0, description="Unix time in seconds; 0: none is open.")
    requests: int = Field(default=0, ge=0)
    tokens: int = Field(default=0, ge=0, description="Used, or reserved by requests of this window.")
    period: str = Field(default="", description="The budget's: 2026-11-29, 2026-11 or total.")
    spent_picos: int = Field(default=0, ge=0)
    alerted: bool = Field(default=False, description="This period's alert was given.")
    budget_set_at: float | None = Field(
        default=None, description="The `set_at` of the budget that is counted."
    )
    slots: dict[str, Slot] = Field(default_factory=dict[str, Slot])
    late: dict[str, LateRun] = Field(default_factory=dict[str, LateRun], description="By `Run.name`.")
    doubt: Doubt | None = None

    def window_left(self, now: float) -> float:
        """Seconds until the window ends; 0: none is open any more."""
        return max(0.0, self.window_start + WINDOW_SECONDS - now) if self.window_start else 0.0

    def late_in(self, period: str) -> dict[str, LateRun]:
        """As they are in that period: in a new one nothing of them is spent."""
        if self.period == period:
            return dict(self.late)
        return {run: LateRun(since=late.since) for run, late in self.late.items()}

    @property
    def seats(self) -> int:
        return sum(slot.seats for slot in self.slots.values())

    @property
    def held_picos(self) -> int:
        return sum(slot.held_picos for slot in self.slots.values())


@dataclass(frozen=True)
class Run:
    """What one HTTP request is in the ledger: rows of one run id, under the ids of its requests."""

    tenant_id: str
    request_id: str
    run_id: str
    num_requests: int = 1
    """Of a completion of several prompts: the ids of the others follow from the first."""

    @property
    def name(self) -> str:
        return f"{subject_token(self.tenant_id)}.{self.request_id}.{self.run_id}.{self.num_requests}"

    @property
    def request_ids(self) -> tuple[str, ...]:
        return request_ids_of(self.request_id, self.num_requests)

    @classmethod
    def named(cls, name: str) -> Run | None:
        """None: no name of a run."""
        try:
            tenant, request_id, run_id, num_requests = name.split(".")
            return cls(name_of_token(tenant), request_id, run_id, int(num_requests))
        except ValueError:
            return None


def period_name(period: BudgetPeriod, now: float) -> str:
    """`2026-11-29`, `2026-11` or `total`, by UTC."""
    if period == "total":
        return "total"
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d" if period == "day" else "%Y-%m")


def period_start(period: BudgetPeriod, now: float) -> float:
    """Unix time in seconds."""
    if period == "total":
        return 0.0
    today = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today if period == "day" else today.replace(day=1)).timestamp()


def key_party(key_id: str) -> str:
    return f"key.{subject_token(key_id)}"


def team_party(tenant_id: str, team: str) -> str:
    return f"team.{subject_token(tenant_id)}.{subject_token(team)}"


def model_party(model: str) -> str:
    return f"model.{subject_token(model)}"


def rule_entry(party: str) -> str:
    return f"rule.{party}"


def name_of_party(party: str) -> str:
    """Of a key its id, of a model or a team its name."""
    return name_of_token(party.rpartition(".")[2])


def is_model(party: str) -> bool:
    return party.startswith(model_party(""))


def use_entry(party: str) -> str:
    return f"use.{party}"


def party_of_use(entry: str) -> str:
    return entry.removeprefix(use_entry(""))
