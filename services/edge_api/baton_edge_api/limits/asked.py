"""What a request wants, as far as limits go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from baton_contracts.limits import Run


@dataclass(frozen=True)
class Asked:
    model: str
    """As the client named it."""
    count_prompt_tokens: Callable[[], Awaitable[int]]
    """Called only where tokens or money are limited."""
    run: Run
    """Its rows in the ledger, when there are any."""
    max_output_tokens: int | None = None
    """Of one answer, as the client asked; None: it named no bound."""
    num_answers: int = 1
    answered_by: str = ""
    """The model behind that name, where the catalog doesn't know it."""

    @property
    def known_as(self) -> str:
        """What the catalog, with its aliases and prices, can be asked for."""
        return self.answered_by or self.model
