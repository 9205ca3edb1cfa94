"""The prompt as it travels: messages made of parts, each part marked with where its text came from.

Origins let guardrails judge untrusted text (user, document, tool) apart from trusted text, and let a
quarantined document be dropped by dropping its part. A message's text is its parts joined, no separator.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel

Role = Literal["system", "developer", "user", "assistant", "tool"]
Origin = Literal["client", "history", "document", "tool", "builder"]


class Part(WireModel):
    text: str
    origin: Origin = "client"
    chunk_id: str | None = Field(default=None, description="Set on document parts: key into `Prompt.chunks`.")


class Message(WireModel):
    role: Role
    parts: tuple[Part, ...]
    name: str | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)


class Chunk(WireModel):
    """A retrieved passage that may be cited."""

    chunk_id: str
    citation: int = Field(ge=1, description="The number that the answer uses: [1], [2], …")
    source: str = Field(description="Where it comes from, for people: a file name and heading.")
    score: float
    quarantined: bool = False
    quarantine_reason: str | None = None


class Prompt(WireModel):
    messages: tuple[Message, ...] = Field(min_length=1)
    chunks: tuple[Chunk, ...] = ()

    @property
    def has_documents(self) -> bool:
        return any(part.origin == "document" for message in self.messages for part in message.parts)

    @property
    def citations(self) -> tuple[str, ...]:
        """Sources of [1], [2], … in order; empty text at a number whose chunk is not in the prompt."""
        sources = {chunk.citation: chunk.source for chunk in self.chunks if not chunk.quarantined}
        return tuple(sources.get(number, "") for number in range(1, max(sources, default=0) + 1))


class Sampling(WireModel):
    """Sampling parameters with the model's own defaults where a field is None."""

    max_tokens: int | None = Field(default=None, ge=1)
    min_tokens: int = Field(default=0, ge=0)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    min_p: float | None = Field(default=None, ge=0, le=1)
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class ChatRequest(WireModel):
    """A chat request as the edge understood it; the OpenAI wire form stays at the edge."""

    model: str = Field(description="As the client named it: a model, or an alias such as `auto`.")
    messages: tuple[Message, ...] = Field(min_length=1)
    sampling: Sampling = Sampling()
    stream: bool = False
    retrieval: Literal["auto", "on", "off"] = "auto"
    continue_conversation: bool = Field(
        default=False,
        description="True if the client named a stored conversation: its history goes before the messages.",
    )
    use_cache: bool = Field(
        default=True, description="False: neither read nor written (`cache-control: no-store`)."
    )
