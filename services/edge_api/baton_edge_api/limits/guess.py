"""How many tokens it will be that nobody can count beforehand: a guess from the key's earlier requests. Pure.

Mean plus twice the mean deviation, both moving averages as TCP keeps them of round trips (RFC 6298), so that
a key whose requests vary is given more room than one whose requests are alike. Knows nothing of what is left.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

_GAIN_MEAN = 1 / 8
_GAIN_DEVIATION = 1 / 4
_DEVIATIONS = 2
MAX_KEYS = 10_000


@dataclass
class _Seen:
    mean: float
    deviation: float


class TokenGuess:
    """One figure of requests: the length of an answer, or what the relay added to a prompt."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    def tokens(self, key_id: str, unseen: int) -> int:
        """`unseen`: of a key that never told."""
        seen = self._seen.get(key_id)
        return unseen if seen is None else round(seen.mean + _DEVIATIONS * seen.deviation)

    def learn(self, key_id: str, num_tokens: int) -> None:
        """In one request of this key it was so many."""
        seen = self._seen.get(key_id)
        if seen is None:
            self._seen[key_id] = _Seen(num_tokens, num_tokens / 2)
            if len(self._seen) > MAX_KEYS:
                self._seen.popitem(last=False)
            return
        self._seen.move_to_end(key_id)
        seen.deviation += _GAIN_DEVIATION * (abs(num_tokens - seen.mean) - seen.deviation)
        seen.mean += _GAIN_MEAN * (num_tokens - seen.mean)
