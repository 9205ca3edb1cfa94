"""The exact response cache: the same question, asked again by the same tenant, under the same policy.

In memory, least recently used first out, bounded in bytes and in age. Text in it is masked text, as it was
before the output guardrails: a hit passes today's. Owns its entries; knows no bus.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass

from baton_common.clock import Clock
from baton_contracts.frames import FinishReason, ToolCallPiece, Usage
from baton_contracts.prompt import ChatRequest, Message, Prompt, Sampling

ENTRY_OVERHEAD_BYTES = 512
"""Key, usage and the dictionary's own share."""


@dataclass(frozen=True)
class CachedAnswer:
    """One answer: its text, and what stood beside it. Logprobs and further answers are not kept."""

    text: str
    finish_reason: FinishReason
    usage: Usage
    reasoning: str = ""
    tool_calls: tuple[ToolCallPiece, ...] = ()

    @property
    def num_bytes(self) -> int:
        calls = sum(len(call.encode()) for call in self.tool_calls)
        return len(self.text.encode()) + len(self.reasoning.encode()) + calls + ENTRY_OVERHEAD_BYTES


def cache_key(*, tenant_id: str, model: str, prompt: Prompt, chat: ChatRequest, policy_version: str) -> str:
    """SHA-256 over all that could change the answer, in a form without ambiguity.

    The masked values themselves are not in it: the same masked text has the same masked answer. Priority is
    not either: it changes only when the answer comes.
    """
    parts = [
        tenant_id,
        chat.cache_salt,
        model,
        policy_version,
        [_message(message) for message in prompt.messages],
        prompt.citations,
        [tool.model_dump_json() for tool in prompt.tools],
        chat.tool_choice.model_dump_json(),
        prompt.template_variables,
        [prompt.rendering, prompt.token_ids, prompt.add_special_tokens],
        chat.sampling.model_dump_json(),
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _message(message: Message) -> list[object]:
    calls = [[call.call_id, call.name, call.arguments] for call in message.tool_calls]
    return [message.role, message.name, message.text, bool(message.parts), calls, message.tool_call_id]


def may_be_cached(sampling: Sampling, *, sampled_too: bool) -> bool:
    """Greedy and seeded answers repeat themselves; a free sample is expected to differ each time."""
    return sampled_too or sampling.temperature == 0 or sampling.seed is not None


@dataclass(frozen=True)
class _Entry:
    answer: CachedAnswer
    stored_at: float
    ttl_seconds: float


class ResponseCache:
    def __init__(self, clock: Clock, *, max_bytes: int, ttl_seconds: float) -> None:
        self._clock = clock
        self._max_bytes = max_bytes
        self._ttl = ttl_seconds
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self.num_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str, max_age_seconds: float | None = None) -> CachedAnswer | None:
        """One that is older than `max_age_seconds` stays for others, who may be content with it."""
        found = self._entries.get(key)
        if found is None:
            return None
        age = self._clock.monotonic() - found.stored_at
        if age > found.ttl_seconds:
            self._drop(key)
            return None
        if max_age_seconds is not None and age >= max_age_seconds:
            return None
        self._entries.move_to_end(key)
        return found.answer

    def holds(self, key: str, max_age_seconds: float | None = None) -> bool:
        """Whether `get` would find it; it is not used by being asked for."""
        found = self._entries.get(key)
        if found is None:
            return False
        age = self._clock.monotonic() - found.stored_at
        return age <= found.ttl_seconds and (max_age_seconds is None or age < max_age_seconds)

    def put(self, key: str, answer: CachedAnswer, ttl_seconds: float | None = None) -> None:
        """An answer larger than the whole cache is not kept. `ttl_seconds`: instead of the cache's own."""
        if key in self._entries:
            self._drop(key)
        if answer.num_bytes > self._max_bytes:
            return
        ttl = self._ttl if ttl_seconds is None else ttl_seconds
        self._entries[key] = _Entry(answer, self._clock.monotonic(), ttl)
        self.num_bytes += answer.num_bytes
        while self.num_bytes > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: str) -> None:
        self.num_bytes -= self._entries.pop(key).answer.num_bytes
