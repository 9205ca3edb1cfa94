"""What every process reads from its environment, once, at its start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """Base of each service's own settings. Variables carry the prefix BATON_."""

    model_config = SettingsConfigDict(env_prefix="BATON_", extra="ignore")

    nats_url: str = "nats://127.0.0.1:4222"
    nats_user: str = ""
    nats_password: SecretStr = SecretStr("")
    home: Path = Path.home() / ".baton"
    log_format: Literal["plain", "json"] = "plain"
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    drain_seconds: float = 30.0
    """How long a draining process may take to finish what it holds."""
    instance_file: Path | None = None
    """Gets the instance's name once it is ready: a health check beside it then knows whose lease to hear."""


_S = TypeVar("_S", bound=ServiceSettings)


def load_settings(kind: type[_S]) -> _S:
    """Exits with a sentence for each bad value, naming its variable."""
    try:
        return kind()
    except ValidationError as error:
        for problem in error.errors(include_url=False):
            variable = "BATON_" + "_".join(str(part) for part in problem["loc"]).upper()
            sys.stderr.write(f"{variable}: {problem['msg']}\n")
        raise SystemExit(2) from None
