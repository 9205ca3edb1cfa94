from __future__ import annotations

from baton_common.bus import BusMessage
from baton_common.memory_bus import MemoryBus
from baton_common.prompt_tokens import ask_tokens
from baton_common.tasks import spawn
from baton_contracts import subjects
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Message, Part, Prompt
from baton_contracts.tokens import TokensQuery, TokensReply

QUERY = TokensQuery(
    model="qwen2.5-0.5b", prompt=Prompt(messages=(Message(role="user", parts=(Part(text="hi"),)),))
)


async def bus_that_answers(payload: bytes | None) -> MemoryBus:
    bus = MemoryBus()

    def on_message(message: BusMessage) -> None:
        if payload is not None:
            spawn(bus.publish(message.reply, payload))

    await bus.subscribe(subjects.tokens_of_model("qwen2=2E5-0=2E5b"), on_message, queue="engine_worker")
    return bus


async def test_the_models_replicas_answer() -> None:
    reply = TokensReply(num_tokens=3, token_ids=(1, 2, 3), tokenizer="t")
    bus = await bus_that_answers(reply.encode())
    assert await ask_tokens(bus, new_request_id(), QUERY) == reply


async def test_nobody_there_too_slow_or_nonsense_is_no_answer_and_no_error() -> None:
    assert await ask_tokens(MemoryBus(), new_request_id(), QUERY) is None
    assert await ask_tokens(await bus_that_answers(None), new_request_id(), QUERY, seconds=0.01) is None
    assert await ask_tokens(await bus_that_answers(b"{"), new_request_id(), QUERY) is None
    away = MemoryBus(online=False)
    assert await ask_tokens(away, new_request_id(), QUERY) is None
