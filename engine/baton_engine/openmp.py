"""How torch's CPU threads wait for one another. Owns one environment variable; must be imported before torch.

Every torch operator ends at a barrier. GNU OpenMP's threads spin there for milliseconds before they sleep,
which is right on an idle machine and ruinous on a busy one: when another process has a core, the thread that
spins burns the other core, which the awaited thread needs. A short spin bridges the gap between two operators
and no more. What the environment sets already stays; once torch is loaded, nothing here has an effect.
"""

from __future__ import annotations

import os

SPINS = "2000"  # some tens of microseconds


def wait_briefly() -> None:
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", SPINS)
