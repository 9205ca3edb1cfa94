"""G8: a regex rule with catastrophic backtracking in the rules file."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from baton_common.rules_file import ConfigError
from baton_input_guardrails.config import load_config
from baton_input_guardrails.wiring import build_judge

RULES = "input: {{injection: {{patterns: [{{name: own.rule, kind: override, pattern: '{pattern}'}}]}}}}"


def rules_file(folder: Path, pattern: str) -> Path:
    path = folder / "rules.yaml"
    path.write_text(RULES.format(pattern=pattern))
    return path


@pytest.mark.parametrize("pattern", [r"(a+)+\1$", r"(?=(a+)+$)a", r"(a{900}){900}"])
def test_a_pattern_that_can_not_be_linear_stops_the_start(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(ConfigError, match=r"patterns\.0\.pattern"):
        load_config(rules_file(tmp_path, pattern))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*a){20}$"])
def test_a_pattern_that_would_hang_others_is_linear_here(tmp_path: Path, pattern: str) -> None:
    judge = build_judge(load_config(rules_file(tmp_path, pattern)))
    started = time.process_time()
    judge.judge("a" * 50_000 + "!", "client")
    assert time.process_time() - started < 5
