"""Four ways to choose among replicas, from the same numbers. `ours` is the router's own order, imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from baton_inference_router.scoring import Asked, Candidate, ranked

Pick = Callable[[list[Candidate], Asked, Mapping[str, int]], Candidate | None]
"""Candidates, what is known of the prompt, how many of its tokens each has cached → one, or nobody."""


def round_robin(candidates: list[Candidate], asked: Asked, cached: Mapping[str, int]) -> Candidate | None:
    del cached
    return min(_taking(candidates, asked), key=lambda each: each.last_pick, default=None)


def least_loaded(candidates: list[Candidate], asked: Asked, cached: Mapping[str, int]) -> Candidate | None:
    del cached
    return min(_taking(candidates, asked), key=lambda each: (each.load, each.last_pick), default=None)


def prefix_only(candidates: list[Candidate], asked: Asked, cached: Mapping[str, int]) -> Candidate | None:
    def preference(each: Candidate) -> tuple[int, int, int]:
        return (-cached.get(each.replica, 0), each.load, each.last_pick)

    return min(_taking(candidates, asked), key=preference, default=None)


def ours(candidates: list[Candidate], asked: Asked, cached: Mapping[str, int]) -> Candidate | None:
    order = ranked(candidates, asked, cached)
    return order[0].candidate if order else None


POLICIES: dict[str, Pick] = {
    "round robin": round_robin,
    "least loaded": least_loaded,
    "prefix only": prefix_only,
    "ours": ours,
}

ASKING = ("prefix only", "ours")
"""Those that must know a prompt's tokens."""


def _taking(candidates: list[Candidate], asked: Asked) -> list[Candidate]:
    return [each for each in candidates if each.takes(asked.prompt_tokens)]
