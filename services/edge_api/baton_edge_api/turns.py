"""So many at once, of one tenant fewer: nobody's many keep others out.

    its tenant's turn ──▶ everybody's turn ──▶ goes
          │ too long, or too many wait: 429    │ too long: 503

Owns who waits and for how long. Knows nothing of what it is that takes turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from baton_common.errors import RequestFailed
from baton_contracts.errors import ErrorBody, ErrorCode

WAIT_SECONDS = 10.0
MAX_WAITING = 16
"""Of one tenant."""


@dataclass(eq=False)
class _OfTenant:
    turns: asyncio.Semaphore
    num_here: int = 0
    """Under way or waiting."""


class Turns:
    def __init__(self, at_once: int, of_tenant: int, what: str) -> None:
        """`what` they are, for the refusal: `uploads`."""
        self._of_all = asyncio.Semaphore(at_once)
        self._at_once = at_once
        self._of_tenant = min(of_tenant, at_once)
        self._what = what
        self._tenants: dict[str, _OfTenant] = {}

    @asynccontextmanager
    async def turn(self, tenant_id: str) -> AsyncGenerator[None, None]:
        """Raises RequestFailed: 429 if the tenant's own fill its turns, 503 if everybody's do."""
        tenant = self._tenants.setdefault(tenant_id, _OfTenant(asyncio.Semaphore(self._of_tenant)))
        if tenant.num_here >= self._of_tenant + MAX_WAITING:
            raise self._too_many_of_tenant()
        tenant.num_here += 1
        try:
            deadline = asyncio.get_running_loop().time() + WAIT_SECONDS
            if not await _within(tenant.turns, deadline):
                raise self._too_many_of_tenant()
            try:
                if not await _within(self._of_all, deadline):
                    text = f"{self._at_once} {self._what} are under way. Try again shortly."
                    raise _refusal("queue_full", text)
                try:
                    yield
                finally:
                    self._of_all.release()
            finally:
                tenant.turns.release()
        finally:
            tenant.num_here -= 1
            if not tenant.num_here:
                del self._tenants[tenant_id]

    def _too_many_of_tenant(self) -> RequestFailed:
        text = f"{self._of_tenant} of your {self._what} may be under way at once. Wait for one to end."
        return _refusal("rate_limit_exceeded", text)


async def _within(turns: asyncio.Semaphore, deadline: float) -> bool:
    try:
        async with asyncio.timeout_at(deadline):
            await turns.acquire()
    except TimeoutError:
        return False
    return True


def _refusal(code: ErrorCode, text: str) -> RequestFailed:
    return RequestFailed(ErrorBody(code=code, message=text, stop="edge_api", retry_after_seconds=1))
