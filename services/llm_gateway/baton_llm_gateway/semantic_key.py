"""Which requests may be answered by the answer to another wording, and what else must then be the same. Pure.

Everything but the last question's phrasing is in the key: tenant, model, policy version, system prompt,
history, documents with their text (so another version of a document is another key), tools, every
parameter, and the words of the question that carry its meaning (question_guard.py).
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from baton_contracts.prompt import ChatRequest, Message, Prompt, Sampling
from baton_llm_gateway.question_guard import wording
from baton_llm_gateway.response_cache import cache_key

LONGEST_QUESTION = 600
"""Characters. An embedder cuts long texts, and would find alike what differs behind the cut."""


@dataclass(frozen=True)
class Alike:
    """Requests with the same `key` differ in the phrasing of `question` at most."""

    key: str
    question: str


def alike(
    *, tenant_id: str, model: str, prompt: Prompt, chat: ChatRequest, policy_version: str
) -> Alike | None:
    """None: only the very same request may have this one's answer."""
    question = _question(prompt)
    if not question or not _may_be_shared(prompt, chat.sampling):
        return None
    words = wording(question)
    if words is None:
        return None
    rest = cache_key(
        tenant_id=tenant_id,
        model=model,
        prompt=_without_question(prompt),
        chat=chat,
        policy_version=policy_version,
    )
    parts = [rest, words.words, sorted(words.asked)]
    return Alike(hashlib.sha256(json.dumps(parts).encode()).hexdigest(), question)


def _may_be_shared(prompt: Prompt, sampling: Sampling) -> bool:
    """Not where the answer depends on letters: structures, tokens told; nor once tools spoke."""
    if prompt.rendering != "chat" or sampling.structured or sampling.n > 1 or sampling.return_token_ids:
        return False
    if sampling.logprobs is not None or sampling.prompt_logprobs is not None:
        return False
    return not any(message.tool_calls or message.role == "tool" for message in prompt.messages)


def _question(prompt: Prompt) -> str:
    """The client's own words in the last message, if that is the user's and not too long."""
    last = prompt.messages[-1]
    if last.role != "user":
        return ""
    text = "".join(part.text for part in last.parts if part.origin == "client")
    return text.strip() if len(text) <= LONGEST_QUESTION else ""


def _without_question(prompt: Prompt) -> Prompt:
    """Its place is still marked: what stands before and behind it stays apart."""
    last: Message = prompt.messages[-1]
    parts = tuple(
        part.model_copy(update={"text": "\0"}) if part.origin == "client" else part for part in last.parts
    )
    return prompt.model_copy(
        update={"messages": (*prompt.messages[:-1], last.model_copy(update={"parts": parts}))}
    )
