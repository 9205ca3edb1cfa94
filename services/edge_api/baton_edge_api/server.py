"""The HTTP server: the socket, TLS, and uvicorn inside the node's own event loop.

Owns the listening socket, and an end that cuts no request: whoever stands at the door is let in before it
closes, and a connection is only closed after an answer that said so, or when it has been silent for a while.
Signals belong to the process, not to uvicorn.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp

from baton_edge_api.http_protocol import EdgeConnection, make_protocol
from baton_edge_api.settings import EdgeSettings

_KEEP_ALIVE_SECONDS = 75
_SHUTDOWN_SECONDS = 5
_SILENT_SECONDS = 1.0
"""A client that has said nothing for so long is hardly about to."""
_LOOK_SECONDS = 0.05
_LONGEST_USER_TIMEOUT = 2**31 - 1
"""Milliseconds: what the system takes."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._close_door(sockets or [])
        await self._close_silent()
        await super().shutdown(sockets)

    async def _close_door(self, sockets: list[socket.socket]) -> None:
        """The system resets who is connected and not yet let in when the door closes: first nobody joins the
        queue any more, then it is let in."""
        for sock in sockets:
            sock.listen(0)
        await asyncio.sleep(_LOOK_SECONDS)
        for server in self.servers:
            server.close()

    async def _close_silent(self) -> None:
        """Until every connection that is not being answered has been silent for a while. Who is in the middle
        of a head has that while, and is cut off: nothing has been done for it, so it may ask elsewhere."""
        now = asyncio.get_running_loop().time
        until = now() + 2 * _SILENT_SECONDS
        while now() < until:
            is_any_waited_for = False
            for connection in list(self.server_state.connections):
                assert isinstance(connection, EdgeConnection)
                if connection.heard_at is None:
                    continue
                if now() - connection.heard_at >= _SILENT_SECONDS:
                    connection.shutdown()
                else:
                    is_any_waited_for = True
            if not is_any_waited_for:
                return
            await asyncio.sleep(_LOOK_SECONDS)


def listen(settings: EdgeSettings) -> socket.socket:
    """Exits with a sentence if the address can't be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.create_server(address[:2], family=family, backlog=2048)
    except OSError as error:
        where = f"{settings.host}:{settings.port}"
        sys.stderr.write(f"BATON_HOST, BATON_PORT: can't listen on {where}: {error.strerror}\n")
        raise SystemExit(2) from None
    _bound_unsent(sock, 2 * settings.write_timeout)
    return sock


def _bound_unsent(sock: socket.socket, seconds: float) -> None:
    """The system gives up a connection whose client has taken nothing for so long, which nobody else does
    once an answer is written: closing waits for what is unsent. Connections inherit it."""
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        milliseconds = int(min(seconds * 1000, _LONGEST_USER_TIMEOUT))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def check_tls(settings: EdgeSettings) -> None:
    """Exits with a sentence if the certificate can't be used."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        sys.stderr.write("BATON_TLS_CERT, BATON_TLS_KEY: give both or neither.\n")
        raise SystemExit(2)
    if settings.tls_cert:
        try:
            ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                settings.tls_cert, settings.tls_key
            )
        except (OSError, ssl.SSLError) as error:
            sys.stderr.write(f"BATON_TLS_CERT, BATON_TLS_KEY: can't be used: {error}\n")
            raise SystemExit(2) from None


@asynccontextmanager
async def serving(
    app: ASGIApp, settings: EdgeSettings, sock: socket.socket, is_leaving: Callable[[], bool]
) -> AsyncGenerator[None, None]:
    """Accepts connections within the block; at its end closes those that are silent, then the others. From
    `is_leaving` on, clients are told not to come back on the same connection."""
    config = uvicorn.Config(
        app,  # pyright: ignore[reportArgumentType]  # uvicorn types its scopes more narrowly than starlette
        http=make_protocol(settings.header_timeout, is_leaving),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=2048,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[sock]))
    try:
        yield
    finally:
        server.should_exit = True
        await running
