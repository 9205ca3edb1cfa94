"""What the input guardrails' tests share: one real analyser a process (its model takes seconds to load)."""

from __future__ import annotations

import pytest

from baton_input_guardrails.config import InputConfig
from baton_input_guardrails.personal_data import PersonalDataAnalyser


@pytest.fixture(scope="session")
def analyser() -> PersonalDataAnalyser:
    return PersonalDataAnalyser(InputConfig().personal_data.entities)
