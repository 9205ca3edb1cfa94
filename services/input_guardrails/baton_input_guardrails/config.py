"""The rules file of the input guardrails: its form, read and checked once, at start.

Patterns of the file run on RE2: one that could need more than linear time (back-reference, look-around) is
refused here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator

from baton_common.rules_file import Phrases, Section, load_section
from baton_input_guardrails.injection import PatternRefused, compile_pattern
from baton_input_guardrails.injection_rules import Kind

OnFailure = Literal["closed", "open"]


def _linear(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except PatternRefused as error:
        raise ValueError(f"RE2 refuses {pattern!r}: {error}") from None
    return pattern


class InjectionPattern(Section):
    name: str = Field(pattern=r"^[a-z0-9_.]{1,64}$")
    kind: Kind
    pattern: str = Field(min_length=1, max_length=2000)
    client: float = Field(default=1.0, ge=0, le=10)
    document: float = Field(default=1.0, ge=0, le=10)

    _checked = field_validator("pattern")(_linear)


class InjectionConfig(Section):
    mode: Literal["block", "monitor", "off"] = "block"
    on_failure: OnFailure = "closed"
    threshold: float = Field(default=1.0, gt=0)
    monitor: tuple[Kind, ...] = ()
    patterns: tuple[InjectionPattern, ...] = ()


class TopicsConfig(Section):
    mode: Literal["block", "monitor", "off"] = "block"
    phrases: Phrases = ()


class EntityPattern(Section):
    entity: str = Field(pattern=r"^[A-Z][A-Z_]{1,40}$")
    pattern: str = Field(min_length=1, max_length=2000)

    _checked = field_validator("pattern")(_linear)


class PersonalDataConfig(Section):
    mode: Literal["mask", "block", "monitor", "off"] = "mask"
    on_failure: OnFailure = "closed"
    score: float = Field(default=0.35, ge=0, le=1)
    max_chars: int = Field(default=200_000, ge=1)
    entities: tuple[str, ...] = Field(
        default=(
            "PERSON",
            "EMAIL_ADDRESS",
            "PHONE_NUMBER",
            "CREDIT_CARD",
            "IBAN_CODE",
            "US_SSN",
            "IP_ADDRESS",
            "API_KEY",
        ),
        min_length=1,
    )
    patterns: tuple[EntityPattern, ...] = ()
    allow: tuple[str, ...] = ()


class InputConfig(Section):
    injection: InjectionConfig = InjectionConfig()
    topics: TopicsConfig = TopicsConfig()
    personal_data: PersonalDataConfig = PersonalDataConfig()


def load_config(path: Path | None) -> InputConfig:
    """The `input:` section of `path`, or of the file in this package. Raises ConfigError."""
    return load_section(InputConfig, "input", path, "baton_input_guardrails")
