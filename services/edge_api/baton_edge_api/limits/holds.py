"""What one request has reserved in one account, and what it came to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Hold:
    window_start: float = 0.0
    """0: neither requests nor tokens are counted."""
    requests: int = 0
    tokens: int | None = None
    """None: not limited, so not counted."""
    seats: int = 0
    picos: int | None = None
    run: str = ""
    """Whose tokens or money are to be settled: by others, if this edge can't."""


@dataclass(frozen=True)
class Use:
    tokens: int = 0
    picos: int = 0
    is_all: bool = True
    """False: more of it may come yet."""
