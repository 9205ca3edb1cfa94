"""The rules file of the input guardrails: its form, read and checked once, at start.

Patterns of the file run on RE2: one that could need more than linear time (back-reference, look-around) is
refused here.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from baton_input_guardrails.injection import PatternRefused, compile_pattern
from baton_input_guardrails.injection_rules import Kind

OnFailure = Literal["closed", "open"]


class ConfigError(ValueError):
    """The rules file can't be used; says where and why."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _linear(pattern: str) -> str:
    try:
        compile_pattern(pattern)
    except PatternRefused as error:
        raise ValueError(f"RE2 refuses {pattern!r}: {error}") from None
    return pattern


class InjectionPattern(_Section):
    name: str = Field(pattern=r"^[a-z0-9_.]{1,64}$")
    kind: Kind
    pattern: str = Field(min_length=1, max_length=2000)
    client: float = Field(default=1.0, ge=0, le=10)
    document: float = Field(default=1.0, ge=0, le=10)

    _checked = field_validator("pattern")(_linear)


class InjectionConfig(_Section):
    mode: Literal["block", "monitor", "off"] = "block"
    on_failure: OnFailure = "closed"
    threshold: float = Field(default=1.0, gt=0)
    monitor: tuple[Kind, ...] = ()
    patterns: tuple[InjectionPattern, ...] = ()


class TopicPhrase(_Section):
    text: str = Field(min_length=1, max_length=500)
    whole_words: bool = True


class TopicsConfig(_Section):
    mode: Literal["block", "monitor", "off"] = "block"
    phrases: tuple[TopicPhrase, ...] = ()

    @field_validator("phrases", mode="before")
    @classmethod
    def _plain_strings(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]  # YAML
        return [{"text": item} if isinstance(item, str) else item for item in items]


class EntityPattern(_Section):
    entity: str = Field(pattern=r"^[A-Z][A-Z_]{1,40}$")
    pattern: str = Field(min_length=1, max_length=2000)

    _checked = field_validator("pattern")(_linear)


class PersonalDataConfig(_Section):
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


class InputConfig(_Section):
    injection: InjectionConfig = InjectionConfig()
    topics: TopicsConfig = TopicsConfig()
    personal_data: PersonalDataConfig = PersonalDataConfig()


def load_config(path: Path | None) -> InputConfig:
    """The `input:` section of `path`, or of the file in this package. Raises ConfigError."""
    where = str(path or "default_config.yaml")
    try:
        document = yaml.safe_load(path.read_text() if path else _packaged())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: a mapping with an `input:` section is expected")
    try:
        return InputConfig.model_validate(document.get("input") or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["input", *map(str, first["loc"])])
        raise ConfigError(f"{where}: {place}: {first['msg']}") from None


def _packaged() -> str:
    return resources.files("baton_input_guardrails").joinpath("default_config.yaml").read_text()
