"""What an account tells: why it refuses a request, and how it stands. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

RefusalKind = Literal["requests", "tokens", "concurrent", "budget", "budget_held"]


@dataclass(frozen=True)
class Refusal:
    kind: RefusalKind
    limit: int
    used: int
    wanted: int
    retry_after_seconds: float

    @property
    def can_never_fit(self) -> bool:
        return self.wanted > self.limit


@dataclass(frozen=True)
class View:
    """How an account stands, for headers. None: not limited."""

    limit_requests: int | None = None
    remaining_requests: int = 0
    limit_tokens: int | None = None
    remaining_tokens: int = 0
    reset_seconds: float = 0.0
    """Until the window ends and both are whole again; 0: no window is open."""
    spent_percent: int | None = None
    """Of the budget, if its alert is due."""
