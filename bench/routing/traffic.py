"""Arrivals: who asks when, with which beginning in common. The same seed, the same traffic for every policy.

shared  many system prompts of 640 tokens, some much liked, a short question behind each
chats   conversations whose every turn repeats all before it
one     everybody has the same system prompt
cold    nothing in common, lengths from 50 to 2,000 tokens
flood   shared, at several times what the replicas can do
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BLOCK = 16
PREFIX_BLOCKS = 40
NUM_TURNS = 5
THINK_SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class Arrival:
    at: float
    chain: tuple[int, ...]
    """Of its full blocks, as the index keeps them."""
    num_tokens: int
    answer_tokens: int


@dataclass(frozen=True)
class Load:
    """`rate`: requests a second for each replica."""

    rate: float
    make: Callable[[random.Random, float, int, int], Iterator[Arrival]]


def arrivals(name: str, num_replicas: int, count: int, seed: int = 1, share: float = 1.0) -> list[Arrival]:
    """`share` of the load's rate."""
    load = LOADS[name]
    chance = random.Random(seed)  # noqa: S311  # the same traffic each time
    made = load.make(chance, share * load.rate * num_replicas, count, num_replicas)
    return sorted(made, key=lambda each: each.at)


def shared(chance: random.Random, rate: float, count: int, num_replicas: int) -> Iterator[Arrival]:
    groups = min(32 * num_replicas, 400)
    yield from _behind_prefixes(chance, rate, count, groups)


def one(chance: random.Random, rate: float, count: int, num_replicas: int) -> Iterator[Arrival]:
    del num_replicas
    yield from _behind_prefixes(chance, rate, count, 1)


def cold(chance: random.Random, rate: float, count: int, num_replicas: int) -> Iterator[Arrival]:
    del num_replicas
    for at in _times(chance, rate, count):
        length = min(2000, max(50, round(chance.lognormvariate(5.5, 0.9))))
        yield Arrival(at, _blocks(chance, length // BLOCK), length, _answer(chance))


def chats(chance: random.Random, rate: float, count: int, num_replicas: int) -> Iterator[Arrival]:
    del num_replicas
    for begins in _times(chance, rate / NUM_TURNS, count // NUM_TURNS):
        at, chain = begins, _blocks(chance, chance.randint(10, 30))
        for _ in range(NUM_TURNS):
            yield Arrival(at, chain, len(chain) * BLOCK + 8, _answer(chance))
            chain += _blocks(chance, chance.randint(4, 10))
            at += chance.expovariate(1 / THINK_SECONDS)


def _behind_prefixes(chance: random.Random, rate: float, count: int, groups: int) -> Iterator[Arrival]:
    prefixes = [_blocks(chance, PREFIX_BLOCKS) for _ in range(groups)]
    liked = [1 / (rank + 1) ** 0.8 for rank in range(groups)]
    for at in _times(chance, rate, count):
        tail = chance.randint(2, 6)
        chain = chance.choices(prefixes, liked)[0] + _blocks(chance, tail)
        yield Arrival(at, chain, len(chain) * BLOCK + 8, _answer(chance))


def _times(chance: random.Random, rate: float, count: int) -> Iterator[float]:
    at = 0.0
    for _ in range(count):
        at += chance.expovariate(rate)
        yield at


def _blocks(chance: random.Random, count: int) -> tuple[int, ...]:
    return tuple(chance.getrandbits(64) for _ in range(count))


def _answer(chance: random.Random) -> int:
    return chance.randint(8, 56)


LOADS: dict[str, Load] = {
    "shared": Load(3.0, shared),
    "chats": Load(3.0, chats),
    "one": Load(6.0, one),
    "cold": Load(3.0, cold),
    "flood": Load(40.0, shared),
}
