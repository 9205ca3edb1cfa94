"""The order in which replicas are tried. Pure: knows numbers, no bus and no time.

A replica's score is seconds of its work: the prompts that wait there, what its requests still have to write,
and, twice, what this one adds: its prompt without what the cache holds, an adapter that must be loaded. The
lowest is best; the longest unpicked wins a tie. Three things stand above the score:

    full        over its bound in requests or in tokens: never in the order
    held back   a newcomer over its share (ramp), or without KV memory for the prompt: behind all others
    gated       far busier than the least busy: its cache earns nothing, so that no prefix makes a crowd
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from heapq import nsmallest
from statistics import fmean, geometric_mean

DECODE_COST = 4.0
"""A token written costs about as much as so many read: between 15 alone and 3 in a full batch on a CPU."""
UNMEASURED_ANSWER_TOKENS = 64.0
UNMEASURED_TOKENS_PER_SECOND = 1000.0
OTHER_MACHINE = 1.5
"""Speeds within this factor of the usual are one machine's, measured at busier or luckier times: by them all
would go to whoever was measured while the others rested."""
OWN_WEIGHT = 2.0
"""A token of this prompt that must be computed costs the request its time and all others the replica's:
computing what another replica has is work for nobody."""
LEAST_CACHED_TOKENS = 64
LEAST_CACHED_SHARE = 0.1
"""A prompt of which less is cached is as good anywhere: what all chats begin with must not gather them."""
ADAPTER_TOKENS = 4096
"""Loading an adapter takes about as long as so many tokens of a prompt."""
NO_CACHE: Mapping[str, int] = {}


@dataclass(slots=True)
class Candidate:
    """One replica that is alive, ready and serves the model, as it is at the moment of the choice."""

    replica: str
    running: int
    waiting: int
    reserved: int
    """Seats of this router that the replica's own numbers do not contain yet."""
    capacity: int
    """Requests it takes at most, running and waiting together."""
    waiting_tokens: int = 0
    """Of prompts that are not computed yet, those just sent included."""
    ended: float = 0.0
    """Of those running, that have probably ended since they were counted: only a score goes by it."""
    max_waiting_tokens: int = 0
    """0: no bound is known."""
    kv_usage: float = 0.0
    kv_free_tokens: int | None = None
    last_pick: int = 0
    """Grows with each pick; the longest unpicked wins a tie, so that idle replicas take turns."""
    tokens_per_second: float = 0.0
    """Of prompts, while it computes them; 0: not measured yet."""
    answer_tokens: float = 0.0
    """Mean length of its answers; 0: not measured yet. All replicas of a model answer the same people: what
    theirs differ in is chance, so a score goes by the mean of all."""
    adapters: frozenset[str] = frozenset()
    ramp: float = 1.0
    """Share of the others' load that a newcomer may have; grows to 1."""
    load: int = field(init=False)
    """Kept: a choice among a thousand reads it some thousand times."""

    def __post_init__(self) -> None:
        self.load = self.running + self.waiting + self.reserved

    @property
    def full(self) -> bool:
        return self.load >= self.capacity

    def takes(self, prompt_tokens: int) -> bool:
        """Within its bounds. One that holds nothing takes any prompt: its engine says if it never fits."""
        if self.load >= self.capacity:
            return False
        over = self.max_waiting_tokens and self.waiting_tokens + prompt_tokens > self.max_waiting_tokens
        return not (over and self.waiting + self.reserved)


@dataclass(frozen=True, slots=True)
class Gate:
    """How much busier than the least busy a replica may be before its cache stops to count.

    Half of it if it is not the only one with the prefix: a conversation stays where it is, and what everybody
    begins with is soon everywhere.
    """

    requests: int = 4
    share: float = 0.5

    def shuts(self, load: int, least: int, *, is_only_holder: bool = True) -> bool:
        allowed = self.requests if is_only_holder else self.requests / 2
        return load - least > allowed and load > least * (1 + self.share)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a score must know of the request; 0 tokens: not known."""

    prompt_tokens: int = 0
    adapter: str = ""


@dataclass(slots=True)
class Choice:
    candidate: Candidate
    seconds: float
    """The score."""
    cached_tokens: int = 0
    """Of the prompt, as the index has it; counted in the score unless gated."""
    gated: bool = False
    held_back: bool = False

    @property
    def replica(self) -> str:
        return self.candidate.replica

    @property
    def load(self) -> int:
        return self.candidate.load


ANYTHING = Asked()
USUAL_GATE = Gate()


def ranked(
    candidates: Iterable[Candidate],
    asked: Asked = ANYTHING,
    cached: Mapping[str, int] = NO_CACHE,
    gate: Gate = USUAL_GATE,
    most: int | None = None,
) -> list[Choice]:
    """The best first, `most` of them; full ones left out. `cached`: tokens of the prompt that a replica need
    not compute."""
    taking = [candidate for candidate in candidates if candidate.takes(asked.prompt_tokens)]
    if not taking:
        return []
    usual = _usual(taking)
    least = min([candidate.load for candidate in taking])
    of_holders = [cached[each.replica] for each in taking if each.replica in cached]
    is_only = of_holders.count(max(of_holders, default=0)) == 1
    choices = [_choice(each, asked, usual) for each in taking if each.replica not in cached]
    for each in taking:
        if each.replica in cached:
            shut = gate.shuts(each.load, least, is_only_holder=is_only)
            choices.append(_choice(each, asked, usual, cached[each.replica], gated=shut))
    return sorted(choices, key=_preference) if most is None else nsmallest(most, choices, key=_preference)


@dataclass(frozen=True, slots=True)
class _Usual:
    """What those that could take it have in common."""

    load: float | None
    """Mean of those that are no newcomers; None: all are, and none is held back for the others."""
    speed: float
    """Tokens of prompts a second; who is measured between the next two is as fast as that."""
    slowest: float
    fastest: float
    request_tokens: float
    """What a request still has to write, on average, in tokens of a prompt."""


def _usual(taking: list[Candidate]) -> _Usual:
    settled = [each.load for each in taking if each.ramp >= 1]
    speeds = [each.tokens_per_second for each in taking if each.tokens_per_second]
    answers = [each.answer_tokens for each in taking if each.answer_tokens]
    speed = geometric_mean(speeds) if speeds else UNMEASURED_TOKENS_PER_SECOND
    return _Usual(
        load=fmean(settled) if settled else None,
        speed=speed,
        slowest=speed / OTHER_MACHINE,
        fastest=speed * OTHER_MACHINE,
        request_tokens=(fmean(answers) if answers else UNMEASURED_ANSWER_TOKENS) / 2 * DECODE_COST,
    )


def _choice(
    candidate: Candidate, asked: Asked, usual: _Usual, cached: int = 0, *, gated: bool = False
) -> Choice:
    own = asked.prompt_tokens
    if cached and not gated and _is_worth_it(cached, own):
        own = max(0, own - cached)
    if asked.adapter and asked.adapter not in candidate.adapters:
        own += ADAPTER_TOKENS
    still_to_write = (candidate.load - candidate.ended) * usual.request_tokens
    speed = candidate.tokens_per_second
    if not speed or usual.slowest < speed < usual.fastest:
        speed = usual.speed
    seconds = (candidate.waiting_tokens + still_to_write + OWN_WEIGHT * own) / speed
    free = candidate.kv_free_tokens
    no_room = free is not None and asked.prompt_tokens - cached > free
    too_new = candidate.ramp < 1 and _has_its_share(candidate, usual)
    return Choice(candidate, seconds, cached, gated, no_room or too_new)


def _has_its_share(candidate: Candidate, usual: _Usual) -> bool:
    return usual.load is not None and candidate.load >= max(1.0, candidate.ramp * usual.load)


def _is_worth_it(cached: int, prompt_tokens: int) -> bool:
    return cached >= LEAST_CACHED_TOKENS and cached >= LEAST_CACHED_SHARE * prompt_tokens


def _preference(choice: Choice) -> tuple[bool, float, int, float, int, str]:
    candidate = choice.candidate
    return (
        choice.held_back,
        choice.seconds,
        candidate.load,
        candidate.kv_usage,
        candidate.last_pick,
        candidate.replica,
    )
