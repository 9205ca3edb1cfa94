"""A real NATS server with the users and permissions of `baton up`: what a service may do is tested too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from baton_cli.up.nats_config import OPERATOR, render_nats_config
from baton_cli.up.settings import SERVICES
from baton_common.nats_bus import NatsBus
from baton_contracts.permissions import inbox_prefix
from tests.support.nats_server import running_nats_server


@dataclass(frozen=True)
class RestrictedNats:
    url: str

    def environment(self, service: str) -> dict[str, str]:
        """How a process of `service` finds the server."""
        return {
            "BATON_NATS_URL": self.url,
            "BATON_NATS_USER": service,
            "BATON_NATS_PASSWORD": password_of(service),
        }

    async def connect(self, user: str = OPERATOR) -> NatsBus:
        return await NatsBus.connect(
            self.url, name="test", user=user, password=password_of(user), inbox_prefix=inbox_prefix(user)
        )


def password_of(user: str) -> str:
    return f"secret-of-{user}"


@contextmanager
def restricted_nats(folder: Path, *, port: int = -1) -> Iterator[RestrictedNats]:
    """JetStream's store is `folder`/store: a second server there finds what the first one kept."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "nats.conf"
    passwords = {user: password_of(user) for user in (*SERVICES, OPERATOR)}
    config.write_text(render_nats_config(port=port, store=folder / "store", passwords=passwords))
    with running_nats_server(folder, config, port=port) as url:
        yield RestrictedNats(url)
