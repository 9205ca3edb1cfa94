"""The prompt as it travels: messages made of parts, each part marked with where its text came from.

Origins let guardrails judge untrusted text (user, document, tool) apart from trusted text, and let a
quarantined document be dropped by dropping its part. A message's text is its parts joined, no separator.

What clients send as free JSON (schemas, arguments, template variables) travels as JSON text: nothing on the
way has to understand it, and its order and its nulls stay as they are.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import WireModel

Role = Literal["system", "developer", "user", "assistant", "tool"]
Origin = Literal["client", "history", "document", "tool", "builder"]
Rendering = Literal["chat", "unopened", "continued", "raw"]
"""What the engine makes of messages: a chat that the model answers; one without the opening of an answer; one
whose last message goes on; or the one message's text itself, without any template."""


class Part(WireModel):
    text: str
    origin: Origin = "client"
    chunk_id: str | None = Field(default=None, description="Set on document parts: key into `Prompt.chunks`.")


class ToolCall(WireModel):
    """A call that the model made earlier, as its client tells it again."""

    call_id: str = Field(min_length=1, max_length=128)
    name: str = Field(min_length=1, max_length=128)
    arguments: str = Field(description="JSON text, as the model wrote it.")


class Message(WireModel):
    role: Role
    parts: tuple[Part, ...] = Field(description="None: content null, beside tool calls only.")
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = Field(default=(), description="Of an assistant's message.")
    tool_call_id: str | None = Field(default=None, description="Of a tool's message: which call it answers.")

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    @property
    def num_characters(self) -> int:
        """Of all that the model will read."""
        calls = sum(len(call.name) + len(call.arguments) for call in self.tool_calls)
        return sum(len(part.text) for part in self.parts) + calls


class Tool(WireModel):
    """A function that the client will run if the model calls it."""

    name: str = Field(min_length=1, max_length=64)
    description: str = ""
    parameters: str = Field(default="", description="JSON Schema as JSON text; empty: no parameters.")
    strict: bool = Field(default=False, description="Arguments fit the schema even of a free call.")

    @property
    def num_characters(self) -> int:
        return len(self.name) + len(self.description) + len(self.parameters)


class ToolChoice(WireModel):
    """Whether the model must, may or may not call tools. It concerns `Prompt.tools`."""

    mode: Literal["auto", "none", "required"] = "auto"
    name: str | None = Field(default=None, description="With `required`: this tool and no other.")
    parallel: bool = Field(default=True, description="False: one call an answer at most.")


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
    tools: tuple[Tool, ...] = Field(default=(), description="None are shown under tool choice `none`.")
    template_variables: str = Field(
        default="", description="A JSON object as text: what the client passes to the model's chat template."
    )
    rendering: Rendering = "chat"
    token_ids: tuple[int, ...] = Field(
        default=(), description="Of a raw prompt that came as ids: they spell its text, or are refused."
    )
    add_special_tokens: bool = Field(
        default=True,
        description="Of a raw prompt's text: with what the model expects around it, mostly a BOS.",
    )

    @property
    def num_characters(self) -> int:
        """Of all that the model will read."""
        return sum(each.num_characters for each in (*self.messages, *self.tools))

    @property
    def has_documents(self) -> bool:
        return any(part.origin == "document" for message in self.messages for part in message.parts)

    @property
    def citations(self) -> tuple[str, ...]:
        """Sources of [1], [2], … in order; empty text at a number whose chunk is not in the prompt."""
        sources = {chunk.citation: chunk.source for chunk in self.chunks if not chunk.quarantined}
        return tuple(sources.get(number, "") for number in range(1, max(sources, default=0) + 1))


class StructuredOutput(WireModel):
    """What the answer's text must match."""

    kind: Literal["json_object", "json_schema", "regex", "choice", "grammar"]
    text: str = Field(default="", description="The schema (JSON text), the pattern or the grammar.")
    choices: tuple[str, ...] = ()
    param: str = Field(description="The request parameter it came from, for errors.")


class Sampling(WireModel):
    """Sampling parameters with the model's own defaults where a field is None.

    Bounds that need the model (ids within its vocabulary, numbers of answers and logprobs) are the engine's.
    """

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
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    presence_penalty: float = Field(default=0, ge=-2, le=2)
    frequency_penalty: float = Field(default=0, ge=-2, le=2)
    repetition_penalty: float | None = Field(default=None, gt=0)
    logit_bias: dict[int, float] = Field(
        default_factory=dict[int, float], description="Token id → number added to its logit."
    )
    bad_words: tuple[str, ...] = ()
    allowed_token_ids: tuple[int, ...] | None = None
    n: int = Field(default=1, ge=1, description="So many answers to the one prompt.")
    logprobs: int | None = Field(
        default=None,
        ge=0,
        description="So many of the most likely tokens beside each one; 0: the chosen alone.",
    )
    prompt_logprobs: int | None = Field(default=None, ge=0)
    return_token_ids: bool = Field(default=False, description="`Data.tokens` and `Data.prompt` are wanted.")
    truncate_prompt_tokens: int | None = Field(
        default=None,
        ge=-1,
        description="Keep the prompt's last so many tokens; -1: what the model takes.",
    )
    structured: StructuredOutput | None = None


class ChatRequest(WireModel):
    """A chat request as the edge understood it; the OpenAI wire form stays at the edge."""

    model: str = Field(description="As the client named it: a model, or an alias such as `auto`.")
    messages: tuple[Message, ...] = Field(min_length=1)
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    template_variables: str = Field(default="", description="See `Prompt`.")
    rendering: Rendering = "chat"
    token_ids: tuple[int, ...] = Field(default=(), description="See `Prompt`.")
    add_special_tokens: bool = Field(default=True, description="See `Prompt`.")
    sampling: Sampling = Sampling()
    priority: int = Field(
        default=0, description="Lower is served earlier; waiting makes up for it. Clients can only step back."
    )
    cache_salt: str = Field(
        default="",
        max_length=256,
        description="Cached work is shared only with requests of the same tenant and salt.",
    )
    stream: bool = False
    retrieval: Literal["auto", "on", "off"] = "auto"
    continue_conversation: bool = Field(
        default=False,
        description="True if the client named a stored conversation: its history goes before the messages.",
    )
    trim_history: bool = Field(
        default=True, description="False: nothing is dropped to make it fit; what is too long is refused."
    )
    use_cache: bool = Field(
        default=True, description="False: neither read nor written (`cache-control: no-store`)."
    )
    cache_max_age: float | None = Field(
        default=None,
        ge=0,
        description="A cached answer must be younger than so many seconds; 0: none is taken, but this one is "
        "kept (`cache-control: no-cache`, `max-age=N`).",
    )
    cache_ttl: float | None = Field(
        default=None, gt=0, description="Keep this answer for so many seconds (`x-baton-cache-ttl`)."
    )

    @property
    def num_characters(self) -> int:
        """Of all text in it."""
        read = sum(each.num_characters for each in (*self.messages, *self.tools))
        structured = self.sampling.structured
        extra = len(structured.text) + sum(map(len, structured.choices)) if structured else 0
        return read + len(self.template_variables) + extra + sum(map(len, self.sampling.bad_words))
