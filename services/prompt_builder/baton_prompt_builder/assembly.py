"""The prompt's shape: system, history, documents, question, and the tools beside them. Pure.

What is the same from one request to the next stands first and is byte-identical, so that its KV blocks are
found in the prefix cache. Documents differ each time: they stand inside the last user message, before the
question.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from baton_contracts.prompt import ChatRequest, Chunk, Message, Part, Prompt, Tool
from baton_prompt_builder.ranking import Passage

DOCUMENTS_MARK = "Documents:\n\n"
QUESTION_MARK = "Using these documents, answer the question in one or two full sentences.\n\nQuestion: "
"""Of nine wordings tried on the default models, the one that always gave an answer from the documents. Asked
to cite by number, they answer with a number alone; output guardrails name the sources in a last line."""
_MARKS_IN_DOCUMENT = re.compile(r"^(?=[ \t]*(?:\[\d+\]|Documents:|Question:))", re.MULTILINE)

SYSTEM_ROLES = ("system", "developer")


def with_system_prompt(messages: Sequence[Message], default: str) -> tuple[Message, ...]:
    """The client's own system message, where there is one, else the default one, goes first."""
    if messages[0].role in SYSTEM_ROLES or not default:
        return tuple(messages)
    return (Message(role="system", parts=(Part(text=default, origin="builder"),)), *messages)


def with_history(history: Sequence[Message], messages: Sequence[Message]) -> tuple[Message, ...]:
    """Leading system messages, then the stored history, then what is new. A stored system message is used
    only where the client sends none now."""
    num_leading = next(
        (index for index, message in enumerate(messages) if message.role not in SYSTEM_ROLES), len(messages)
    )
    leading, rest = messages[:num_leading], messages[num_leading:]
    stored = [message for message in history if message.role in SYSTEM_ROLES]
    turns = [message for message in history if message.role not in SYSTEM_ROLES]
    return (*(leading or stored[-1:]), *turns, *rest)


def last_question(messages: Sequence[Message]) -> int | None:
    """Index of the last user message."""
    return next((index for index in range(len(messages) - 1, -1, -1) if messages[index].role == "user"), None)


def offered_tools(chat: ChatRequest) -> tuple[Tool, ...]:
    """Those that the model hears of: one that may call none must not be tempted."""
    return () if chat.tool_choice.mode == "none" else chat.tools


def build_prompt(messages: Sequence[Message], passages: Sequence[Passage]) -> Prompt:
    index = last_question(messages)
    if index is None or not passages:
        return Prompt(messages=tuple(messages))
    question = messages[index]
    parts = (*document_parts(passages), *question.parts)
    asked = question.model_copy(update={"parts": parts})
    return Prompt(messages=(*messages[:index], asked, *messages[index + 1 :]), chunks=_chunks(passages))


def with_tools(prompt: Prompt, chat: ChatRequest) -> Prompt:
    more = {
        "tools": offered_tools(chat),
        "template_variables": chat.template_variables,
        "rendering": chat.rendering,
    }
    return prompt.model_copy(update=more)


def raw_prompt(chat: ChatRequest) -> Prompt:
    """Its client wrote all of it."""
    return Prompt(
        messages=chat.messages,
        rendering=chat.rendering,
        token_ids=chat.token_ids,
        add_special_tokens=chat.add_special_tokens,
    )


def document_parts(passages: Sequence[Passage]) -> tuple[Part, ...]:
    """All parts of a passage name its chunk, so that a guard that drops the chunk drops its number too. The
    label is a document's own words: it stands in the document part, where guards look."""
    parts: list[Part] = [Part(text=DOCUMENTS_MARK, origin="builder")]
    for number, passage in enumerate(passages, start=1):
        chunk = passage.chunk
        text = f"{_one_line(chunk.label)}:\n{as_plain_text(chunk.text)}"
        parts += [
            Part(text=f"[{number}] ", origin="builder", chunk_id=chunk.chunk_id),
            Part(text=text, origin="document", chunk_id=chunk.chunk_id),
            Part(text="\n\n", origin="builder", chunk_id=chunk.chunk_id),
        ]
    parts.append(Part(text=QUESTION_MARK, origin="builder"))
    return tuple(parts)


def as_plain_text(text: str) -> str:
    """A line that looks like one of our own marks is quoted. Template tokens need nothing here: the engine
    encodes all text of messages as text."""
    return _MARKS_IN_DOCUMENT.sub("> ", text)


def _one_line(label: str) -> str:
    return " ".join(label.split())


def _chunks(passages: Sequence[Passage]) -> tuple[Chunk, ...]:
    return tuple(
        Chunk(
            chunk_id=passage.chunk.chunk_id,
            citation=number,
            source=citation_source(passage),
            score=round(passage.score, 4),
        )
        for number, passage in enumerate(passages, start=1)
    )


def citation_source(passage: Passage) -> str:
    """Where a citation leads, for people: file name and heading. One line, whatever they are."""
    return _one_line(" > ".join((passage.chunk.source, *passage.chunk.headings)))
