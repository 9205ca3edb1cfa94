"""What must hold when it is over: nobody hangs, each answer is billed once and as its client was told, and
nothing is held any more. Each broken promise is one sentence. Pure: verdict.py gathers what is judged."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from baton_cli.reconcile.differences import differences
from baton_cli.reconcile.evidence import Evidence
from baton_contracts.limits import AccountState, key_party, use_entry
from tests.chaos.books import Books, Row
from tests.chaos.clients import Asked, Visit, Wish
from tests.chaos.mischief import RECOVERY_SECONDS, Deed

SLACK_SECONDS = 1.0
"""A client may note its end before the deed's time is noted."""
BREAKS = ("edge_api", "llm_gateway", "output_guardrails")
"""An answer that they have in hand may end in an error; whoever else goes, it goes on."""
TURNS_AWAY: Mapping[Wish, tuple[str, ...]] = {
    "an answer": (*BREAKS, "prompt_builder", "input_guardrails", "inference_router", "nats_server"),
    "an embedding": ("edge_api", "embedder", "nats_server"),
}
"""Without them nobody gets in, or who was let in gets an error instead. Of the others no client sees
anything: a replica's work goes on at the other one, a search goes by words alone, records wait."""

_TRACEBACK = re.compile(r"│ Traceback .*\n(?:[^│\n]*│ {2,}.*\n)*(.*)")
"""Of `baton up`'s log: the frames of the stack are indented, what was raised is not."""


def of_deeds(deeds: Sequence[Deed]) -> Iterator[str]:
    for deed in deeds:
        if deed.back_after is None:
            yield f"not whole again: {deed.name}"


def of_clients(visits: Sequence[Visit], deeds: Sequence[Deed]) -> Iterator[str]:
    for visit in visits:
        if not visit.was_let_in:
            yield f"never let in: {visit.tries[-1].request_id}, tried {len(visit.tries)} times"
        for one in visit.tries:
            if one.hung:
                yield f"hang: {one.request_id} after {one.heard.seconds:.0f} s ({one.heard.broke or one.end})"
            elif not one.ended_well:
                yield f"no right end: {one.request_id} {one.heard}"
            elif not one.heard.left and not one.heard.complete and not _is_owed(one, deeds):
                yield f"for no reason: {one.request_id}, {one.wish}: {one.end} {_heard(one)}"


def _is_owed(one: Asked, deeds: Sequence[Deed]) -> bool:
    """That it came to nothing is owed to a deed of its time that may do that."""
    return any(was_meanwhile(deed, one) and may_cause(deed, one) for deed in deeds)


def was_meanwhile(deed: Deed, one: Asked) -> bool:
    """Its victim was gone, or about to go, at some time of the request."""
    gone_until = deed.at + (RECOVERY_SECONDS if deed.back_after is None else deed.back_after)
    return one.began <= gone_until and one.began + one.heard.seconds >= deed.at - SLACK_SECONDS


def may_cause(deed: Deed, one: Asked) -> bool:
    if one.heard.broke:
        return deed.victim == "edge_api" and deed.how != "frozen"
    if one.heard.status == 200:
        return deed.victim in BREAKS
    return deed.victim in TURNS_AWAY[one.wish]


def _heard(one: Asked) -> str:
    heard = one.heard
    return heard.broke or f"{heard.status} after {heard.seconds:.1f} s: {(heard.error or {}).get('message')}"


def of_books(asked: Sequence[Asked], books: Books) -> Iterator[str]:
    for why in books.rejected:
        yield f"books: a record was rejected: {why}"
    for name in books.rows.keys() - {one.request_id for one in asked}:
        yield f"ledger: {name} was never asked and has {_told(books.rows[name])}"
    for one in asked:
        rows = books.rows.get(one.request_id, [])
        yield from _of_runs(one, rows)
        if one.heard.complete:
            yield from _of_bill(one, rows)
        elif one.heard.text and not rows:
            yield f"ledger: {one.request_id} had text ({one.end}) and has no row"
        turns = books.num_turns.get(one.request_id, 0)
        if turns > 1 or (one.heard.complete and one.wish == "an answer" and not turns):
            yield f"books: {one.request_id} ({one.end}) is in its conversation {turns} times"


def _of_runs(one: Asked, rows: Sequence[Row]) -> Iterator[str]:
    """A request is run once, an attempt is booked once, and one attempt at most ends it."""
    keys = {(row.run_id, row.attempt) for row in rows}
    runs = {row.run_id for row in rows}
    if len(keys) < len(rows) or len(runs) > 1 or sum(row.ends_its_run for row in rows) > 1:
        yield f"ledger: {one.request_id} ({one.end}) is booked twice: {_told(rows)} of {len(runs)} runs"


def _of_bill(one: Asked, rows: Sequence[Row]) -> Iterator[str]:
    """The rows of an answer that came whole add up to what its client was told, one of them ends it."""
    if not any(row.outcome == "finished" for row in rows):
        yield f"ledger: {one.request_id} came whole and has {_told(rows)}"
        return
    told = one.heard.usage or {}
    for name in ("prompt_tokens", "completion_tokens"):
        booked = sum(getattr(row, name) for row in rows)
        if booked != told.get(name, 0):
            yield f"ledger: {one.request_id} was told {told.get(name)} {name}, booked are {booked}"


def _told(rows: Sequence[Row]) -> str:
    counts = Counter(row.outcome for row in rows)
    return "the rows " + (", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none")


def of_witnesses(found: Evidence, *, since: float) -> Iterator[str]:
    for one in differences(found, since=since):
        yield f"{one.kind}: {one.request_id or one.replica} {one.text}"


def still_held(use: Mapping[str, AccountState]) -> dict[str, str]:
    """Seats and money of requests under way, by account."""
    return {
        name: f"{state.seats} seats, {state.held_picos} picos"
        for name, state in use.items()
        if state.seats or state.held_picos
    }


def of_spending(use: Mapping[str, AccountState], costs: Mapping[str, int]) -> Iterator[str]:
    """A key's budget is charged with what its rows cost."""
    for key_id, booked in costs.items():
        account = use.get(use_entry(key_party(key_id)), AccountState())
        if account.spent_picos != booked:
            yield f"limits: the key {key_id} has spent {account.spent_picos} picos, its rows cost {booked}"


def of_logs(log: str) -> Iterator[str]:
    """A process that fails in its code says where."""
    for error, count in Counter(_TRACEBACK.findall(log)).items():
        yield f"traceback {count}×: {error}"
