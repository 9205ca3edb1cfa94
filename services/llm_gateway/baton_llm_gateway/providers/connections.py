"""The way to other servers: one pool of connections, and for each target its address and headers.

Owns the keys, which it reads from the environment once and shows to nobody else.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import aiohttp

from baton_common.catalog_table import CatalogError
from baton_common.routes import Target

KEEP_ALIVE_SECONDS = 30.0
LARGE_BODY_BYTES = 512 * 1024
"""Sent piece by piece, so that others are not kept waiting."""
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


@dataclass(frozen=True)
class Address:
    url: str
    headers: Mapping[str, str] = field(repr=False)
    timeout: aiohttp.ClientTimeout


def addresses(targets: Iterable[Target], environment: Mapping[str, str]) -> dict[str, Address]:
    """By the target's name. Raises CatalogError for a variable that is not set."""
    return {target.name: _address(target, environment) for target in targets if not target.is_local}


def _address(target: Target, environment: Mapping[str, str]) -> Address:
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "baton"}
    if target.api_key_env:
        headers["Authorization"] = f"Bearer {_variable(target, target.api_key_env, environment)}"
    for name, value in target.headers.items():
        headers[name] = _variable(target, value[1:], environment) if value.startswith("$") else value
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=target.connect_seconds)
    return Address(f"{target.base_url}/chat/completions", headers, timeout)


def _variable(target: Target, name: str, environment: Mapping[str, str]) -> str:
    value = environment.get(name, "").strip()
    if not value:
        raise CatalogError(f"target {target.name}", f"the environment variable {name} is not set")
    return value


class Connections:
    def __init__(self, known: Mapping[str, Address]) -> None:
        self._known = known
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, keepalive_timeout=KEEP_ALIVE_SECONDS)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXY_VARIABLES),
            read_bufsize=256 * 1024,
        )

    async def stop(self) -> None:
        if self._session:
            await self._session.close()

    async def post(self, target: Target, body: bytes) -> aiohttp.ClientResponse:
        """Once its headers are here. Raises aiohttp.ClientError, TimeoutError, OSError."""
        assert self._session, "started before it is used"
        address = self._known[target.name]
        return await self._session.post(
            address.url,
            data=io.BytesIO(body) if len(body) > LARGE_BODY_BYTES else body,
            headers=address.headers,
            timeout=address.timeout,
            allow_redirects=False,
        )
