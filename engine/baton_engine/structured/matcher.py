"""One answer's place in its structure. Owns which tokens may come next; knows no batch and no sampling.

A matcher follows the tokens that the request has, whoever made them: a preempted request's stay, a resumed
one's are there from the start, and each of several answers has a matcher of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from llguidance import LLMatcher

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from baton_engine.request import Request

MAX_REASON = 300


class StructureBroken(Exception):
    """The answer has left its structure, or its mask can't be computed: the request fails, alone."""

    code = "structured_output_failed"


class Grammar:
    """A compiled structure, shared by all requests that ask for it.

    They also share what the library learns of it on the way, which is bounded: of a grammar like
    `[ab]*a[ab]{20}` the answers may use that up. It is then worn, and of no more use to anybody.
    """

    def __init__(self, start: LLMatcher) -> None:
        self._start = start
        self.is_worn = False

    def matcher(self) -> Matcher:
        return Matcher(self, self._start.deep_copy())


class Matcher:
    def __init__(self, grammar: Grammar, start: LLMatcher) -> None:
        self._grammar = grammar
        self._at = start
        self._num_accepted = 0
        self.error: StructureBroken | None = None

    def accept(self, token_id: int) -> None:
        """Raises StructureBroken."""
        self._at.consume_token(token_id)
        self._num_accepted += 1
        self._raise_error(f"token {token_id} can't come next")

    def up_to_date(self, request: Request) -> Matcher:
        """Has followed all of the request's answer tokens. Raises StructureBroken."""
        for token_id in request.token_ids[request.num_prompt_tokens + self._num_accepted :]:
            self.accept(token_id)
        return self

    @property
    def is_complete(self) -> bool:
        """Nothing but an end token could follow."""
        return self._at.is_stopped() and self.error is None

    def fill(self, allowed: NDArray[np.uint8]) -> None:
        """Sets the bit of each token that may come next, lowest bit first; of none if that can't be known,
        which `error` then explains.
        """
        try:
            self._at.unsafe_compute_mask_ptr(allowed.ctypes.data, allowed.nbytes)
            self._raise_error("the tokens that may come next can't be computed")
        except Exception as error:  # the library raises bare Exception, too
            broken = error if isinstance(error, StructureBroken) else StructureBroken(str(error))
            self.error = self.error or broken
            self._grammar.is_worn = True
            allowed.fill(0)

    def _raise_error(self, what: str) -> None:
        if self._at.is_error():
            self.error = self.error or StructureBroken(f"{what}: {shortened(self._at.get_error())}")
            raise self.error


def shortened(reason: str) -> str:
    """The library's first words; what follows is its state, or the whole of a text."""
    words = reason.partition("\n<state>")[0].strip()
    return words if len(words) <= MAX_REASON else words[:MAX_REASON] + "…"
