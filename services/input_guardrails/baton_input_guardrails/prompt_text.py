"""Who wrote which text of a prompt, and the prompt with some of it changed. Pure.

Trusted: what the builder wrote, and system or developer messages of the client. Untrusted: everything else,
with the arguments of earlier tool calls (the model's words) and the definitions of tools (a client passes on
what others wrote in them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from baton_contracts.prompt import Message, Part, Prompt

Author = Literal["user", "model", "tool", "document", "definition"]

WITHHELD = "[This result was withheld: it contained instructions to the assistant.]"


@dataclass(frozen=True)
class Passage:
    """Text that is judged as a whole, however many parts it came in."""

    author: Author
    text: str
    message: int
    """Its place among the messages; of a definition, among the tools."""
    chunk_id: str | None = None


def is_trusted(message: Message, part: Part) -> bool:
    if part.origin == "document":
        return False
    return part.origin == "builder" or message.role in ("system", "developer")


def passages(prompt: Prompt) -> Iterator[Passage]:
    """Documents by chunk, definitions by tool, all else by message."""
    documents: dict[str, list[tuple[int, str]]] = {}
    for index, message in enumerate(prompt.messages):
        own: list[str] = []
        tool = ""
        for part in message.parts:
            if is_trusted(message, part):
                continue
            if part.origin == "document":
                key = part.chunk_id or f"message {index}"
                documents.setdefault(key, []).append((index, part.text))
            elif part.origin == "tool" or message.role == "tool":
                tool += part.text
            else:
                own.append(part.text)
        own += [call.arguments for call in message.tool_calls]
        if own:
            yield Passage("model" if message.role == "assistant" else "user", "".join(own), index)
        if tool:
            yield Passage("tool", tool, index)
    for key, texts in documents.items():
        yield Passage("document", "".join(text for _, text in texts), texts[0][0], key)
    for index, tool in enumerate(prompt.tools):
        yield Passage("definition", f"{tool.description}\n{tool.parameters}", index)


def without(prompt: Prompt, quarantined: Mapping[str, str], withheld: frozenset[int]) -> Prompt:
    """Without the chunks in `quarantined` (id → reason); tool text of the messages `withheld` is replaced."""
    if not quarantined and not withheld:
        return prompt
    messages: list[Message] = []
    for index, message in enumerate(prompt.messages):
        parts: list[Part] = []
        replaced = False
        for part in message.parts:
            if _chunk_key(part, index) in quarantined:
                continue
            if index in withheld and not is_trusted(message, part) and part.origin != "document":
                if not replaced:
                    parts.append(part.model_copy(update={"text": WITHHELD}))
                replaced = True
                continue
            parts.append(part)
        if parts or message.tool_calls:
            messages.append(message.model_copy(update={"parts": tuple(parts)}))
    chunks = tuple(
        chunk.model_copy(update={"quarantined": True, "quarantine_reason": quarantined[chunk.chunk_id]})
        if chunk.chunk_id in quarantined
        else chunk
        for chunk in prompt.chunks
    )
    return prompt.model_copy(update={"messages": tuple(messages) or prompt.messages[:0], "chunks": chunks})


def _chunk_key(part: Part, index: int) -> str | None:
    """A part of any origin that names a chunk goes with it: the builder's own headline above it too."""
    if part.chunk_id:
        return part.chunk_id
    return f"message {index}" if part.origin == "document" else None


def personal_texts(messages: tuple[Message, ...]) -> Iterator[str]:
    """What is searched for personal data: all that people and models wrote, but no documents."""
    for message in messages:
        for part in message.parts:
            if part.origin != "document" and not is_trusted(message, part):
                yield part.text
        for call in message.tool_calls:
            yield call.arguments


def replace_personal(messages: tuple[Message, ...], replace: Callable[[str], str]) -> tuple[Message, ...]:
    return tuple(_replaced(message, replace) for message in messages)


def _replaced(message: Message, replace: Callable[[str], str]) -> Message:
    parts = tuple(
        part
        if part.origin == "document" or is_trusted(message, part)
        else part.model_copy(update={"text": replace(part.text)})
        for part in message.parts
    )
    calls = tuple(
        call.model_copy(update={"arguments": replace(call.arguments)}) for call in message.tool_calls
    )
    return message.model_copy(update={"parts": parts, "tool_calls": calls})


def all_texts(prompt: Prompt) -> Iterator[str]:
    """Everything that the model will see."""
    for message in prompt.messages:
        yield from (part.text for part in message.parts)
        yield from (call.arguments for call in message.tool_calls)
    for tool in prompt.tools:
        yield tool.description
        yield tool.parameters
