"""BATON_HOME: which file lies where. Knows names and modes, not contents."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """The state folder of one copy of Baton."""

    root: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Home:
        return cls(Path(environment.get("BATON_HOME") or "~/.baton").expanduser().absolute())

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def run(self) -> Path:
        """Secrets and addresses of the running copy; mode 0700."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def nats_store(self) -> Path:
        return self.root / "nats"

    @property
    def lock(self) -> Path:
        return self.run / "lock"

    @property
    def dev_key(self) -> Path:
        return self.run / "dev_key"

    @property
    def operator(self) -> Path:
        """Address and password with which `baton keys` reaches the bus."""
        return self.run / "operator.json"

    @property
    def nats_config(self) -> Path:
        return self.run / "nats.conf"

    def environment_file(self, service: str) -> Path:
        """Environment of one service, to start a replacement for it by hand: `set -a; . FILE`."""
        return self.run / "env" / f"{service}.env"

    def prepare(self) -> None:
        for folder in (self.root, self.models, self.logs, self.nats_store):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (self.run, self.run / "env"):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)


def wants_large(environment: Mapping[str, str]) -> bool:
    """False if BATON_LARGE_MODEL turns the larger default model off."""
    return environment.get("BATON_LARGE_MODEL", "on").lower() not in ("off", "0", "no", "false")


def write_secret(path: Path, text: str) -> None:
    """Mode 0600 from its first byte on; a reader sees the old text or the new one, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(path)
