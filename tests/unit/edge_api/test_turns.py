"""Turns: nobody's many keep others out, and who is kept out is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.errors import ErrorCode
from baton_edge_api import turns as turns_module
from baton_edge_api.turns import MAX_WAITING, Turns


@asynccontextmanager
async def held(turns: Turns, *tenants: str) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        for tenant in tenants:
            await stack.enter_async_context(turns.turn(tenant))
        yield


async def refused(turns: Turns, tenant: str) -> tuple[ErrorCode, float | None]:
    with pytest.raises(RequestFailed) as caught:
        async with turns.turn(tenant):
            pass
    return caught.value.error.code, caught.value.error.retry_after_seconds


async def test_one_tenants_many_leave_turns_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns_module, "WAIT_SECONDS", 0.0)
    turns = Turns(3, 2, "uploads")
    async with held(turns, "greedy", "greedy"):
        assert await refused(turns, "greedy") == ("rate_limit_exceeded", 1)
        async with turns.turn("modest"):
            assert await refused(turns, "third") == ("queue_full", 1)
    async with held(turns, "third", "third", "greedy"):
        pass


async def test_who_waits_goes_when_one_ends() -> None:
    turns = Turns(2, 1, "uploads")
    went = asyncio.Event()

    async def next_one() -> None:
        async with turns.turn("acme"):
            went.set()

    async with turns.turn("acme"):
        waiting = asyncio.create_task(next_one())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not went.is_set()
    await waiting
    assert went.is_set()
    assert not turns._tenants  # pyright: ignore[reportPrivateUsage]


async def test_too_many_that_wait_are_told_at_once() -> None:
    turns = Turns(2, 1, "uploads")
    async with turns.turn("acme"):
        waiting = [asyncio.create_task(held(turns, "acme").__aenter__()) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        assert await refused(turns, "acme") == ("rate_limit_exceeded", 1)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with turns.turn("acme"):
        assert turns._tenants["acme"].num_here == 1  # pyright: ignore[reportPrivateUsage]
