"""The rules file of the output guardrails: its form, read and checked once, at start."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from baton_common.rules_file import Phrases, Section, load_section


class DenyConfig(Section):
    mode: Literal["block", "monitor"] = "block"
    secrets: bool = True
    phrases: Phrases = ()


class OutputConfig(Section):
    deny: DenyConfig = DenyConfig()


def load_config(path: Path | None) -> OutputConfig:
    """The `output:` section of `path`, or of the file in this package. Raises ConfigError."""
    return load_section(OutputConfig, "output", path, "baton_output_guardrails")
