"""What a scripted relay behind an edge does in several tests."""

from __future__ import annotations

import asyncio

from baton_contracts.errors import ErrorBody
from tests.support.edge_process import Turn

FORTY = "".join(f"{number} " for number in range(40))


async def forty_of_sixty(turn: Turn) -> None:
    """An answer that breaks off."""
    await turn.prologue()
    for word in FORTY.split():
        await turn.data(f"{word} ")
    await turn.error(ErrorBody(code="upstream_error", message="The provider closed.", stop="llm_gateway"))


class Silence:
    """Says nothing between its prologue and the moment at which `heard` is set."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()

    async def __call__(self, turn: Turn) -> None:
        await turn.prologue()
        await self.heard.wait()
        await turn.data("At last.")
        await turn.end()
