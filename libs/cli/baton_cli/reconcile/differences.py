"""Where the witnesses differ. Pure.

    lost row          an engine ran an attempt of which the ledger knows nothing
    unknown attempt   the ledger has an attempt of a living replica that no trace tells of
    tokens            ledger and engine count an attempt differently
    doubled           a run of a request has two rows that end it
    bill              the rows of a request add up to something else than its client was told
    counter           an engine counted more or fewer tokens than its traces tell

Of a system at work, what is on its way differs for a while: `lasting` are those that a later look finds too.
What an engine gave after its request had moved on or had been given up, or after its client had left and
nobody waited for its last word any more, is on nobody's bill, and no difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from baton_cli.reconcile.evidence import EngineRun, Evidence, TheClient
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.records import UsageRecord

Kind = Literal["lost row", "unknown attempt", "tokens", "doubled", "bill", "counter"]
_ENDS = ("finished", "cancelled", "cache_hit")
_MOVED_ON = ("migrated", "error")
SPAN_SLACK_SECONDS = 1.0
"""A row and a span of the same moment may lie on two sides of a border."""


@dataclass(frozen=True)
class Difference:
    kind: Kind
    request_id: str
    """Empty where it is about a replica."""
    text: str
    replica: str = ""

    @property
    def about(self) -> tuple[Kind, str, str]:
        return self.kind, self.request_id, self.replica


def differences(found: Evidence, *, since: float) -> list[Difference]:
    """Of requests that ended from `since` on."""
    return [
        *_attempts(found, since),
        *_doubled(found.rows),
        *_bills(found, since),
        *(one for beat in found.replicas for one in _counters(beat, found)),
    ]


def lasting(before: Iterable[Difference], now: Iterable[Difference]) -> list[Difference]:
    known = {one.about for one in before}
    return [one for one in now if one.about in known]


def _attempts(found: Evidence, since: float) -> Iterator[Difference]:
    rows = {(row.request_id, row.attempt, row.replica): row for row in found.rows}
    runs = {(run.request_id, run.attempt, run.replica): run for run in found.runs}
    for key, run in runs.items():
        if key in rows or _was_given_up(run, found):
            continue
        if run.ended_at >= since + SPAN_SLACK_SECONDS:
            text = f"attempt {run.attempt} on {run.replica}: {_tokens(run)}, and no ledger row"
            yield Difference("lost row", run.request_id, text)
    living = {beat.replica for beat in found.replicas}
    for key, row in rows.items():
        seen = runs.get(key)
        if seen is None:
            if row.replica in living and row.usage.completion_tokens:
                text = f"attempt {row.attempt} on {row.replica}: {_tokens(row)}, and no trace of it"
                yield Difference("unknown attempt", row.request_id, text)
        elif _differ(row, seen, is_unheard=row.request_id in found.unheard):
            text = f"attempt {row.attempt} on {row.replica}: ledger {_tokens(row)}, engine {_tokens(seen)}"
            yield Difference("tokens", row.request_id, text)


def _was_given_up(run: EngineRun, found: Evidence) -> bool:
    """Its replica took it too late to be told that its gateway had given it up, or gone on elsewhere."""
    return (run.request_id, run.attempt) in found.given_up or any(
        row.request_id == run.request_id and row.attempt > run.attempt and row.started_at < run.ended_at
        for row in found.rows
    )


def _differ(row: UsageRecord, seen: EngineRun, *, is_unheard: bool) -> bool:
    """`is_unheard`: the engine's own count did not reach the gateway while it waited."""
    counted = row.usage.completion_tokens
    if row.outcome in _MOVED_ON:
        return counted > seen.completion_tokens
    came_too_late = is_unheard or row.ended_at < seen.ended_at
    if row.outcome == "cancelled" and came_too_late and counted < seen.completion_tokens:
        return row.usage.prompt_tokens != seen.prompt_tokens
    return (row.usage.prompt_tokens, counted) != (seen.prompt_tokens, seen.completion_tokens)


def _doubled(rows: list[UsageRecord]) -> Iterator[Difference]:
    ends: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row in rows:
        if row.outcome in _ENDS:
            ends[row.request_id, row.run_id].append(row.attempt)
    for (request_id, run_id), attempts in ends.items():
        if len(attempts) > 1:
            text = f"run {run_id} has {len(attempts)} rows that end it: attempts {sorted(attempts)}"
            yield Difference("doubled", request_id, text)


def _bills(found: Evidence, since: float) -> Iterator[Difference]:
    """A request id that was used for several runs is left to the other checks."""
    runs: dict[str, dict[str, list[UsageRecord]]] = defaultdict(lambda: defaultdict(list))
    for row in found.rows:
        runs[row.request_id][row.run_id].append(row)
    for client in found.clients:
        of_requests = [runs.get(name, {}) for name in (client.request_id, *client.other_request_ids)]
        if all(len(of_request) == 1 for of_request in of_requests):
            yield from _bill(client, [row for each in of_requests for rows in each.values() for row in rows])
        elif not all(of_requests) and client.ended_at >= since + SPAN_SLACK_SECONDS:
            yield Difference("lost row", client.request_id, "it was answered, and has no ledger row at all")


def _bill(client: TheClient, rows: list[UsageRecord]) -> Iterator[Difference]:
    prompt = sum(row.usage.prompt_tokens for row in rows)
    completion = sum(row.usage.completion_tokens for row in rows)
    told = client.prompt_tokens, client.completion_tokens
    if (prompt, completion) != told:
        text = f"its client was told {told[0]} + {told[1]} tokens, its rows add up to {prompt} + {completion}"
        yield Difference("bill", client.request_id, text)


def _counters(beat: ReplicaHeartbeat, found: Evidence) -> Iterator[Difference]:
    """Only of a replica at rest, all of whose life the evidence covers. The spans were read after its
    heartbeat: what it ended in the second behind that may be counted or not."""
    if beat.num_running or beat.num_waiting or not beat.counting_since:
        return
    runs = [run for run in found.runs if run.replica == beat.replica]
    told = sum(run.completion_tokens for run in runs if run.ended_at <= beat.sent_at)
    most = sum(run.completion_tokens for run in runs if run.ended_at <= beat.sent_at + SPAN_SLACK_SECONDS)
    counted = beat.generation_tokens_total
    if not told <= counted <= most:
        text = f"{beat.replica} counted {counted} tokens, its traces tell of {told}"
        yield Difference("counter", "", text, beat.replica)


def _tokens(what: UsageRecord | EngineRun) -> str:
    usage = what.usage if isinstance(what, UsageRecord) else what
    return f"{usage.prompt_tokens} + {usage.completion_tokens} tokens"
