"""How long an answer will be whose client named no bound: a guess from the key's earlier answers. Pure.

Mean plus twice the mean deviation, both moving averages as TCP keeps them of round trips (RFC 6298), so that
a key whose answers vary is given more room than one whose answers are alike. Knows nothing of what is left.
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


class OutputGuess:
    def __init__(self) -> None:
        self._seen: OrderedDict[str, _Seen] = OrderedDict()

    def tokens(self, key_id: str, most: int) -> int:
        """Of one answer. `most`: what one without a bound may have; it is the guess for a key that was never
        seen."""
        seen = self._seen.get(key_id)
        if seen is None:
            return most
        return max(1, min(most, round(seen.mean + _DEVIATIONS * seen.deviation)))

    def learn(self, key_id: str, num_tokens: int) -> None:
        """One answer to this key had so many."""
        seen = self._seen.get(key_id)
        if seen is None:
            self._seen[key_id] = _Seen(num_tokens, num_tokens / 2)
            if len(self._seen) > MAX_KEYS:
                self._seen.popitem(last=False)
            return
        self._seen.move_to_end(key_id)
        seen.deviation += _GAIN_DEVIATION * (abs(num_tokens - seen.mean) - seen.deviation)
        seen.mean += _GAIN_MEAN * (num_tokens - seen.mean)
