"""The guardrails' rules file: YAML, one section a service, read and checked once, at start.

Owns how a bad file is refused: with the file, the place in it, and why. The forms are the services' own.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

S = TypeVar("S", bound="Section")


class ConfigError(ValueError):
    """The rules file can't be used; says where and why."""


class Section(BaseModel):
    """A part of the file. A name that nobody reads is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Phrase(Section):
    text: str = Field(min_length=1, max_length=500)
    whole_words: bool = True


def _of_plain_strings(value: object) -> object:
    if not isinstance(value, list):
        return value
    items: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]  # YAML
    return [{"text": item} if isinstance(item, str) else item for item in items]


Phrases = Annotated[tuple[Phrase, ...], BeforeValidator(_of_plain_strings)]
"""In the file a plain string stands for a phrase."""


def load_section(form: type[S], section: str, path: Path | None, package: str) -> S:
    """The `section` of `path`, or of the default_config.yaml in `package`. Raises ConfigError."""
    where = str(path or "default_config.yaml")
    try:
        document = yaml.safe_load(path.read_text() if path else _packaged(package))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{where}: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{where}: a mapping with an `{section}:` section is expected")
    try:
        return form.model_validate(document.get(section) or {})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join([section, *map(str, first["loc"])])
        raise ConfigError(f"{where}: {place}: {first['msg']}") from None


def _packaged(package: str) -> str:
    return resources.files(package).joinpath("default_config.yaml").read_text()
