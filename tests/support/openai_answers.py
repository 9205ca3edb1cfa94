"""Chat completions of openai-python, streamed and whole, in one form that can be compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import openai
from openai.types.chat import ChatCompletion, ChatCompletionChunk

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
    for name in ("add", "weather")
]


@dataclass
class Call:
    name: str
    arguments: str
    call_id: str


@dataclass
class Choice:
    content: str = ""
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list[Call])
    tokens: list[str] = field(default_factory=list[str])
    finish_reason: str | None = None

    @property
    def said(self) -> tuple[Any, ...]:
        """All but the ids of its calls, which are new each time."""
        calls = [(call.name, call.arguments) for call in self.calls]
        return self.content, self.reasoning, calls, self.tokens, self.finish_reason


async def streamed(
    client: openai.AsyncOpenAI, **request: Any
) -> tuple[dict[int, Choice], list[ChatCompletionChunk]]:
    """Checks on the way what every stream must keep to."""
    stream = await client.chat.completions.create(
        **request, stream=True, stream_options={"include_usage": True}
    )
    chunks: list[ChatCompletionChunk] = [chunk async for chunk in stream]
    assert len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}) == 1
    choices: dict[int, Choice] = {}
    for chunk in chunks[:-1]:
        [event] = chunk.choices
        is_new = event.index not in choices
        assert (event.delta.role == "assistant") == is_new, "the role comes first and once"
        _take(choices.setdefault(event.index, Choice()), event)
    assert chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    return choices, chunks


def _take(choice: Choice, event: Any) -> None:
    assert choice.finish_reason is None, "nothing comes behind the finish reason"
    choice.finish_reason = event.finish_reason
    choice.content += event.delta.content or ""
    extras = event.delta.model_extra
    assert extras.get("reasoning") == extras.get("reasoning_content")
    choice.reasoning += extras.get("reasoning") or ""
    for delta in event.delta.tool_calls or ():
        if delta.index == len(choice.calls):
            assert delta.type == "function"
            choice.calls.append(Call(delta.function.name, delta.function.arguments, delta.id))
        else:
            assert delta.index == len(choice.calls) - 1
            assert (delta.id, delta.type, delta.function.name) == (None, None, None)
            choice.calls[-1].arguments += delta.function.arguments
    if event.logprobs is not None:
        choice.tokens += [token.token for token in event.logprobs.content]


def whole(answer: ChatCompletion) -> dict[int, Choice]:
    choices: dict[int, Choice] = {}
    for given in answer.choices:
        message: Any = given.message
        calls = [Call(c.function.name, c.function.arguments, c.id) for c in message.tool_calls or ()]
        tokens = [token.token for token in (given.logprobs.content or ())] if given.logprobs else []
        reasoning = (message.model_extra or {}).get("reasoning") or ""
        assert given.index not in choices
        choices[given.index] = Choice(message.content or "", reasoning, calls, tokens, given.finish_reason)
    return choices
