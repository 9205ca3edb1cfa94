"""Handoffs: the message of each stop, and the acknowledgement that moves the baton.

A handoff is a NATS request whose reply is an `Ack`: "held" (I answer for it now), "busy" (mailbox full,
ask another member of the group) or "refused" (with the error; nothing was started).
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from baton_contracts.base import MAX_COUNT, WireModel
from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import SubjectToken
from baton_contracts.prompt import ChatRequest, Prompt, Sampling, ToolChoice


class Ack(WireModel):
    verdict: Literal["held", "busy", "refused"]
    instance: SubjectToken = Field(description="Who answers; for output guardrails, the frames inbox.")
    error: ErrorBody | None = None
    waiting: int | None = Field(
        default=None, ge=0, le=MAX_COUNT, description="Engine: requests waiting, this one included."
    )
    running: int | None = Field(
        default=None, ge=0, le=MAX_COUNT, description="Engine: requests in the batch."
    )


class Handoff(WireModel):
    """What all handoffs share."""

    envelope: Envelope

    @property
    def is_news_to_edge(self) -> bool:
        """Only a note tells the edge who took it (ADR 3): it did not hand it on itself, nor does the prologue
        name the one who takes it."""
        return True

    @property
    def is_answered_to_sender(self) -> bool:
        """Whoever hands it on gets the answer, too: the ack may come with its first frames."""
        return False


class PromptHandoff(Handoff):
    """edge → prompt builder, on `prompt.RID`."""

    chat: ChatRequest

    @property
    def is_news_to_edge(self) -> bool:
        return False


class GuardInHandoff(Handoff):
    """prompt builder → input guardrails, on `guard.in.RID`."""

    chat: ChatRequest
    prompt: Prompt


class GatewayHandoff(Handoff):
    """input guardrails → gateway, on `gateway.RID`. Text is masked from here to the output guardrails."""

    chat: ChatRequest
    prompt: Prompt
    vault: str | None = Field(
        default=None, description="Masked values, encrypted; opened by output guardrails only."
    )
    plain: bool = Field(
        default=False,
        description="From the edge itself, in plain gateway mode: no guard is opened, and the frames go "
        "straight to `reply.EDGE.RID`. Only other servers and the cache answer.",
    )

    @property
    def is_news_to_edge(self) -> bool:
        return not self.plain

    @property
    def is_answered_to_sender(self) -> bool:
        return self.plain


class GuardOutHandoff(Handoff):
    """gateway → output guardrails, on `guard.out.RID`: open the stream's filter before frames flow."""

    gateway: SubjectToken
    vault: str | None = None
    name_sources: bool = Field(
        default=True, description="False: no last line that says what [1], [2], … are; the form forbids it."
    )

    @property
    def is_news_to_edge(self) -> bool:
        return False


class EngineWork(WireModel):
    """What an engine needs to answer: no tenant policy, no HTTP."""

    model: str = Field(description="A served model's name, resolved by the gateway; never an alias.")
    prompt: Prompt
    sampling: Sampling = Sampling()
    tool_choice: ToolChoice = ToolChoice()
    priority: int = Field(default=0, description="Lower is served earlier; waiting makes up for it.")
    resume_token_ids: tuple[int, ...] = Field(
        default=(),
        description="Tokens that an earlier attempt sent: they extend the prompt and are not sent again.",
    )
    resume_others: tuple[tuple[int, ...], ...] = Field(
        default=(), description="Those of the further answers, from index 1 on."
    )
    cache_salt: str = Field(
        default="", description="Prefix cache blocks are shared only under the same salt."
    )
    adapter: str = Field(default="", description="LoRA adapter on top of the model; empty: none.")
    prompt_token_ids: tuple[int, ...] = Field(
        default=(), description="The prompt's tokens, if the router had to ask: not computed a second time."
    )
    prompt_tokenizer: str = Field(
        default="", description="Who made them (TokensReply). An engine with another one makes its own."
    )


class RouteHandoff(Handoff):
    """gateway → router, on `route.RID`. The router's ack comes after a replica accepted (or none did):
    `instance` is then the replica."""

    work: EngineWork
    gateway: SubjectToken
    guard: SubjectToken
    avoid_replicas: tuple[str, ...] = Field(
        default=(), description="Replicas at which this request already failed."
    )


class EngineHandoff(Handoff):
    """router → one replica, on `engine.REPLICA.RID`."""

    work: EngineWork
    gateway: SubjectToken
    guard: SubjectToken
    router: SubjectToken
