"""The files with which containers start: the bus' configuration and, for each service, its own secrets.

Secrets are made once and kept in one file for this owner only; the rest is written from it at each run.
A file is handed to the user number of the one service that may read it. Knows nothing of containers: only a
folder, addresses and numbers.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

from baton_cli.errors import CliError
from baton_cli.home import Home, write_secret
from baton_cli.keys import new_key
from baton_cli.operator_bus import Operator
from baton_cli.up.nats_config import OPERATOR, new_password, new_passwords, render_nats_config
from baton_cli.up.settings import SERVICES
from baton_common.vault import new_key as new_vault_key
from baton_contracts.subjects import Service

NATS_UID = 10000
VAULT_HOLDERS: tuple[Service, ...] = ("input_guardrails", "output_guardrails")

Chown = Callable[[Path, int], None]
"""Gives a file or folder to a user number and the group of the same number."""


def uid_of(service: Service) -> int:
    """The number under which a service's container runs; the compose file says the same."""
    return NATS_UID + 1 + SERVICES.index(service)


@dataclass(frozen=True)
class Addresses:
    """Where things are, as the services see them."""

    nats_url: str
    database_url: str
    """With a user, without a password: that is put in here."""
    nats_store: Path
    """In the bus' own container."""
    monitor_port: int


@dataclass(frozen=True)
class ClusterSecrets:
    passwords: dict[str, str]
    """By NATS user."""
    vault_key: str
    database_password: str
    dev_key: str


@dataclass(frozen=True)
class Cluster:
    home: Home
    addresses: Addresses
    chown: Chown

    def prepare(self, dev_key: str | None) -> ClusterSecrets:
        """Makes what is missing, writes all files anew. `dev_key` replaces the kept one. Raises CliError."""
        home = self.home
        home.prepare()
        for folder in (home.run, home.run / "env"):
            folder.chmod(0o711)  # each service may open the one file that is its own
        known = self._secrets(dev_key)
        host, port = _listener(self.addresses.nats_url)
        config = render_nats_config(
            port=port,
            host=host,
            store=self.addresses.nats_store,
            passwords=known.passwords,
            monitor_port=self.addresses.monitor_port,
        )
        self._hand_over(home.nats_config, config, NATS_UID)
        self.chown(home.nats_store, NATS_UID)
        for service in SERVICES:
            lines = (f"{name}={shlex.quote(value)}\n" for name, value in self._environment(service, known))
            self._hand_over(home.environment_file(service), "".join(lines), uid_of(service))
        operator = Operator(self.addresses.nats_url, OPERATOR, known.passwords[OPERATOR])
        write_secret(home.operator, operator.encode())
        write_secret(home.dev_key, f"{known.dev_key}\n")
        self._write_database_password(known.database_password)
        return known

    def _secrets(self, dev_key: str | None) -> ClusterSecrets:
        file = self.home.run / "secrets.json"
        kept = _kept(file)
        made = ClusterSecrets(
            passwords=new_passwords() | (kept.passwords if kept else {}),
            vault_key=kept.vault_key if kept else new_vault_key(),
            database_password=kept.database_password if kept else new_password(),
            dev_key=dev_key or (kept.dev_key if kept else new_key()),
        )
        if made != kept:
            write_secret(file, json.dumps(asdict(made), indent=1) + "\n")
        return made

    def _environment(self, service: Service, known: ClusterSecrets) -> list[tuple[str, str]]:
        values = {
            "BATON_NATS_URL": self.addresses.nats_url,
            "BATON_NATS_USER": service,
            "BATON_NATS_PASSWORD": known.passwords[service],
        }
        if service in VAULT_HOLDERS:
            values["BATON_VAULT_KEY"] = known.vault_key
        if service == "after_answer":
            values["BATON_DATABASE_URL"] = with_password(self.addresses.database_url, known.database_password)
        if service == "edge_api":
            values["BATON_DEV_KEY"] = known.dev_key
        return list(values.items())

    def _hand_over(self, path: Path, text: str, uid: int) -> None:
        """A reader sees the old file or the new one, and never one that it may not read."""
        fresh = path.with_name(f".{path.name}.fresh")
        write_secret(fresh, text)
        self.chown(fresh, uid)
        fresh.replace(path)

    def _write_database_password(self, password: str) -> None:
        """In a folder of its own, so that the database's container can be given that and nothing else."""
        folder = self.home.run / "database"
        folder.mkdir(mode=0o700, exist_ok=True)
        write_secret(folder / "password", password)


def with_password(url: str, password: str) -> str:
    """Raises CliError for a URL without a user."""
    parts = urlsplit(url)
    if not parts.username or not parts.hostname:
        raise CliError(
            f"The database's URL {url!r} must name a user and a host: postgresql://baton@postgres/baton"
        )
    place = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{parts.username}:{quote(password, safe='')}@{place}"))


def give_to(path: Path, uid: int) -> None:
    """The real `Chown`. Raises CliError where this process may not do that."""
    try:
        os.chown(path, uid, uid)
    except PermissionError as error:
        raise CliError(
            f"{path} can't be given to user {uid}: run this as root, as the setup container does."
        ) from error


def _listener(nats_url: str) -> tuple[str, int]:
    """Loop-back stays loop-back; any other name is the bus' own host, which listens on all its addresses."""
    parts = urlsplit(nats_url)
    if parts.scheme != "nats" or not parts.hostname:
        raise CliError(f"The bus' URL {nats_url!r} must look like nats://nats:4222")
    local = parts.hostname in ("127.0.0.1", "localhost")
    return ("127.0.0.1" if local else "0.0.0.0"), parts.port or 4222  # noqa: S104 - inside its own container


def _kept(file: Path) -> ClusterSecrets | None:
    try:
        return ClusterSecrets(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        # Made anew, they would lock the services out of a database that has the old password.
        raise CliError(
            f"{file} can't be read: {error}. Put it back, or remove the volumes to begin anew."
        ) from error
