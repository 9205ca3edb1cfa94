"""How many tokens a prompt is taken to have, and who is asked."""

from __future__ import annotations

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.prompt import ChatRequest, Message, Part
from baton_contracts.tokens import TokensReply
from baton_edge_api.limits.prompt_count import MESSAGE_TOKENS, count_all

CHATS = [
    ChatRequest(model="m", messages=(Message(role="user", parts=(Part(text=text),)),))
    for text in ("nine char", "a" * 30)
]
BY_CHARACTERS = 3 + 10 + 2 * MESSAGE_TOKENS


async def counted(model: str | None) -> tuple[int, int]:
    """And how often a replica was asked."""
    bus = MemoryBus()
    asked: list[str] = []

    def answer(message: BusMessage) -> None:
        asked.append(message.subject)
        spawn(bus.publish(message.reply, TokensReply(num_tokens=5).encode()))

    await bus.subscribe(f"{subjects.ROOT}.tokens.m.*", answer)
    return await count_all(bus, "0" * 32, CHATS, model), len(asked)


async def test_a_replica_counts_each_prompt() -> None:
    assert await counted("m") == (10, 2)


async def test_where_no_replica_is_there_characters_are_counted() -> None:
    assert await counted("other") == (BY_CHARACTERS, 0)


async def test_what_only_other_servers_have_is_asked_of_nobody() -> None:
    assert await counted(None) == (BY_CHARACTERS, 0)
