"""The rules file of the output guardrails: its form, read and checked once, at start."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator


class ConfigError(ValueError):
    """The rules file can't be used; says where and why."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PhraseRule(_Section):
    text: str = Field(min_length=1, max_length=500)
    whole_words: bool = True


class DenyConfig(_Section):
    mode: Literal["block", "monitor"] = "block"
    secrets: bool = True
    phrases: tuple[PhraseRule, ...] = ()

    @field_validator("phrases", mode="before")
    @classmethod
    def _plain_strings(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]  # YAML
        return [{"text": item} if isinstance(item, str) else item for item in items]


class OutputConfig(_Section):
    deny: DenyConfig = DenyConfig()


def load_config(path: Path | None) -> OutputConfig:
    """The `output:` section of `path`, or of the file in this package. Raises ConfigError."""
    where = str(path or "default_config.yaml")
    try:
        text = path.read_text() if path else _packaged()
        document = yaml.safe_load(text)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: a mapping with an `output:` section is expected")
    try:
        return OutputConfig.model_validate(document.get("output") or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(["output", *map(str, first["loc"])])
        raise ConfigError(f"{where}: {place}: {first['msg']}") from None


def _packaged() -> str:
    return resources.files("baton_output_guardrails").joinpath("default_config.yaml").read_text()
