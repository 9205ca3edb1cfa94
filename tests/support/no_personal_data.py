"""An analyser that finds nothing, for tests in which personal data doesn't matter."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from baton_input_guardrails.personal_data import Analysis


class NoPersonalData:
    def analyse(self, texts: Sequence[str], abandoned: Callable[[], bool] = lambda: False) -> Analysis:
        return Analysis(tuple(() for _ in texts), (1.0, 1.0), (1.0, 1.0))
