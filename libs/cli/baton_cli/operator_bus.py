"""The bus as the operator reaches it: who that is, and one connection for one command."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

import nats.errors
import nats.js.errors
from nats.aio.client import Client

from baton_cli.errors import CliError
from baton_contracts.permissions import inbox_prefix


@dataclass(frozen=True)
class Operator:
    """How the operator reaches the bus; $BATON_HOME/run/operator.json."""

    nats_url: str
    user: str
    password: str

    def encode(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def decode(cls, text: str) -> Operator:
        values = json.loads(text)
        return cls(values["nats_url"], values["user"], values["password"])


@asynccontextmanager
async def operator_bus(operator: Operator, *, name: str = "baton") -> AsyncGenerator[Client]:
    """Raises CliError if the bus does not answer, or refuses."""
    unreachable = CliError(f"The bus at {operator.nats_url} does not answer. Is Baton running (`make up`)?")

    async def ignore(_: Exception) -> None:
        """The call that failed says so itself."""

    client = Client()
    try:
        await client.connect(
            operator.nats_url,
            user=operator.user,
            password=operator.password,
            name=name,
            inbox_prefix=inbox_prefix(operator.user).encode(),
            connect_timeout=2,
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            allow_reconnect=False,
            error_cb=ignore,
        )
    except (OSError, nats.errors.Error, TimeoutError) as error:
        await client.close()
        raise unreachable from error
    try:
        yield client
    except (nats.errors.Error, nats.js.errors.APIError, TimeoutError) as error:
        raise CliError(f"The bus at {operator.nats_url} refused: {error or type(error).__name__}") from error
    finally:
        await client.close()
