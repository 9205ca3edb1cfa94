"""Guesses from the request's own text (prompt lookup): what followed the last tokens where they stood before.

Owns an index of each request's tokens, kept up as they come: a chain of earlier places for every run of
min_match tokens, as compressors keep it. A step costs a few looks whatever the context's length is.
"""

from __future__ import annotations

from collections.abc import Sequence

from baton_engine.request import Request
from baton_engine.speculation.drafting import Wanted, share_out

MOST_PLACES = 16


class PlaceIndex:
    """Where each run of `size` tokens stood. A place is the index of the token behind the run."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._newest: dict[tuple[int, ...], int] = {}
        self._older = [0] * size  # place → the next older place of the same run; 0: none

    def places(self, token_ids: Sequence[int]) -> list[int]:
        """Earlier places of the run that token_ids ends with, newest first, MOST_PLACES at most."""
        self._extend(token_ids)
        if len(token_ids) < self.size:
            return []
        found: list[int] = []
        place = self._newest.get(tuple(token_ids[-self.size :]), 0)
        while place and len(found) < MOST_PLACES:
            found.append(place)
            place = self._older[place]
        return found

    def _extend(self, token_ids: Sequence[int]) -> None:
        """All runs but the one at the very end, which has nothing behind it yet."""
        size, newest, older = self.size, self._newest, self._older
        for place in range(len(older), len(token_ids)):
            run = tuple(token_ids[place - size : place])
            older.append(newest.get(run, 0))
            newest[run] = place


class NgramDrafter:
    def __init__(self, min_match: int, max_match: int) -> None:
        self.min_match = min_match
        self.max_match = max_match
        self._indexes: dict[Request, PlaceIndex] = {}

    def draft(self, wanted: Sequence[Wanted], most: int, running: Sequence[Request]) -> list[list[int]]:
        del running
        drafts = [self._draft_one(request, num_tokens) for request, num_tokens in wanted]
        shares = share_out([len(draft) for draft in drafts], most)
        return [draft[:share] for draft, share in zip(drafts, shares, strict=True)]

    def forget(self, request: Request) -> None:
        self._indexes.pop(request, None)

    def check_idle(self) -> None:
        assert not self._indexes, "an index is kept for a request that is gone"

    def _draft_one(self, request: Request, num_tokens: int) -> list[int]:
        index = self._indexes.get(request)
        if index is None:
            index = self._indexes[request] = PlaceIndex(self.min_match)
        token_ids = request.token_ids
        places = index.places(token_ids)
        if not places:
            return []
        place = max(places, key=lambda at: self._match(token_ids, at))  # the newest of the longest
        return _copied(token_ids, place, num_tokens)

    def _match(self, token_ids: Sequence[int], place: int) -> int:
        """How many tokens before `place` equal the last ones, up to max_match."""
        end = len(token_ids)
        most = min(self.max_match, place)
        for length in range(self.min_match, most):
            if token_ids[place - 1 - length] != token_ids[end - 1 - length]:
                return length
        return most


def _copied(token_ids: Sequence[int], place: int, count: int) -> list[int]:
    """count tokens from `place` on; past the end the copy goes on with itself: text that repeats does so."""
    run = list(token_ids[place : place + count])
    period = len(run)
    return [run[at % period] for at in range(count)]
