"""How many tokens a prompt has, before anybody computes it: the model's own tokenizer is asked, on the bus.

Nobody there, nobody of ours, or too slow: a count by characters, on the high side. History and documents that
the prompt builder will add are not known here; the settlement counts them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from baton_common.bus import Bus
from baton_common.prompt_tokens import ask_tokens
from baton_contracts.prompt import ChatRequest, Prompt
from baton_contracts.tokens import TokensQuery

CHARACTERS_A_TOKEN = 3
"""Low for English prose."""
MESSAGE_TOKENS = 8
"""What a chat template puts around a message."""


async def count_all(bus: Bus, request_id: str, chats: Sequence[ChatRequest], model: str | None) -> int:
    """`model` None: no replica of ours has it, so nobody is asked."""
    if model is None:
        return sum(estimate(prompt_of(chat)) for chat in chats)
    counts = (count_prompt_tokens(bus, request_id, chat, model) for chat in chats)
    return sum(await asyncio.gather(*counts))


async def count_prompt_tokens(bus: Bus, request_id: str, chat: ChatRequest, model: str) -> int:
    prompt = prompt_of(chat)
    query = TokensQuery(model=model, prompt=prompt, sampling=chat.sampling)
    reply = await ask_tokens(bus, request_id, query)
    if reply is None or reply.error:
        return estimate(prompt)
    return reply.num_tokens


def prompt_of(chat: ChatRequest) -> Prompt:
    return Prompt(
        messages=chat.messages,
        tools=chat.tools,
        template_variables=chat.template_variables or "",
        rendering=chat.rendering,
        token_ids=chat.token_ids,
        add_special_tokens=chat.add_special_tokens,
    )


def estimate_text(text: str) -> int:
    """Of a text alone, with what a model puts at its ends."""
    return -(-len(text) // CHARACTERS_A_TOKEN) + 2


def estimate(prompt: Prompt) -> int:
    return -(-prompt.num_characters // CHARACTERS_A_TOKEN) + MESSAGE_TOKENS * len(prompt.messages)
