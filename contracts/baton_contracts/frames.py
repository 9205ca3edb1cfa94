"""Frames: the answer on its way back. A prologue, numbered data, one end; or an error.

`seq` counts from 0 within one (sender, attempt). A receiver that sees a gap asks the sender's
`resend.INSTANCE.RID` for the missing numbers. `held` notes are unnumbered (seq −1): a stop sends one
to the edge when it takes the baton, so the edge always knows whose silence to watch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from baton_contracts.base import WireModel, malformed
from baton_contracts.errors import ErrorBody
from baton_contracts.identifiers import RequestId, SubjectToken
from baton_contracts.subjects import Service

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "cancelled"]


class Usage(WireModel):
    prompt_tokens: int = Field(default=0, ge=0)
    cached_tokens: int = Field(
        default=0, ge=0, description="Prompt tokens whose KV was found in the prefix cache."
    )
    completion_tokens: int = Field(default=0, ge=0, description="Of all answers together.")
    reasoning_tokens: int = Field(default=0, ge=0, description="How many of them were thinking.")


class FrameBase(WireModel):
    request_id: RequestId
    attempt: int = Field(default=1, ge=1)
    sender: SubjectToken = Field(description="Instance that numbered this frame and can send it again.")
    seq: int = Field(ge=-1)
    run_id: str | None = Field(
        default=None,
        description="Only in a frame that is said late, again behind an outage or behind an answer's end: by "
        "then its request's id may be another run's.",
    )


class Held(FrameBase):
    """A stop took the baton. Unnumbered; losing one is harmless. To the edge from the stop itself; to the
    output guardrails from the gateway, when another engine took an answer over and may be silent at first."""

    kind: Literal["held"] = Field(default="held")
    seq: int = -1
    stop: Service


CACHED, SHARED = "cache", "shared"
"""In the place of a replica, where no model was called: an answer that was kept, or another request's."""


class Prologue(FrameBase):
    """The answer will come from here: HTTP 200 may be sent."""

    kind: Literal["prologue"] = Field(default="prologue")
    model: str
    replica: str = Field(description="Instance of the engine worker, name of a target, `cache` or `shared`.")
    gateway: SubjectToken
    guard: SubjectToken
    cache: Literal["none", "exact", "semantic"] = Field(
        default="none", description="semantic: the answer to a question that was phrased otherwise."
    )
    cache_similarity: float | None = Field(
        default=None, ge=-1, le=1.001, description="Of a semantic hit: the cosine of the two questions."
    )
    num_answers: int = Field(default=1, ge=1, description="So many answers come, told apart by index.")
    prompt_tokens: int | None = Field(default=None, ge=0, description="As the engine counted them.")
    resumed: tuple[int, ...] = Field(
        default=(),
        description="So many tokens of each answer, by index, were sent by earlier attempts: this one goes "
        "on behind them.",
    )
    begun_by: int | None = Field(
        default=None,
        ge=1,
        description="The attempt whose beginning this is, where the frames are numbered anew on their way. "
        "None: `attempt`.",
    )
    citations: tuple[str, ...] = Field(default=(), description="Sources of [1], [2], … in order.")
    ignored: tuple[str, ...] = Field(
        default=(), description="Parameters that this model has no use for, by their names in the request."
    )

    @property
    def costs_nothing(self) -> bool:
        return self.replica in (CACHED, SHARED)


class ToolCallPiece(WireModel):
    """A step's addition to one call: id and name come first and once, then pieces of its arguments."""

    index: int = Field(ge=0, description="Of the call within its answer.")
    call_id: str | None = None
    name: str | None = None
    arguments: str = Field(default="", description="The next piece of a JSON object's text.")
    is_whole: bool | None = Field(default=None, description="True: the arguments are complete.")

    def then(self, later: ToolCallPiece) -> ToolCallPiece:
        """Both, of one call, as one."""
        return ToolCallPiece(
            index=self.index,
            call_id=self.call_id or later.call_id,
            name=self.name or later.name,
            arguments=self.arguments + later.arguments,
            is_whole=self.is_whole or later.is_whole,
        )


class RatedToken(WireModel):
    """A token and the natural logarithm of its probability by the model alone."""

    text: str = Field(description="U+FFFD where it is half a character.")
    token_bytes: tuple[int, ...] = Field(description="What it stands for, byte by byte.")
    logprob: float = Field(description="At least -9999.")
    token_id: int | None = Field(default=None, ge=0)


class TokenLogprob(RatedToken):
    top: tuple[RatedToken, ...] = Field(default=(), description="The most likely ones, best first.")


class SpelledToken(WireModel):
    """An id with what it spells: a guard must know it before it lets the id out."""

    token_id: int = Field(ge=0)
    token_bytes: tuple[int, ...] = Field(description="Empty where no token has this id.")


class PromptPiece(WireModel):
    """The next tokens of the prompt, for a request that asked for them. All come before the answer's text."""

    start: int = Field(
        ge=0, description="Place of its first token: an attempt that begins anew tells all again."
    )
    tokens: tuple[SpelledToken, ...]
    logprobs: tuple[TokenLogprob | None, ...] | None = Field(
        default=None,
        description="One for each of `tokens`; None for the prompt's first, before which is nothing.",
    )


class Data(FrameBase):
    """What one engine step added to one answer. All may be empty while characters are held back."""

    kind: Literal["data"] = Field(default="data")
    index: int = Field(default=0, ge=0, description="Of the answer.")
    text: str = Field(default="", description="Of the answer proper.")
    token_ids: tuple[int, ...] = ()
    reasoning: str | None = Field(default=None, description="Of the thinking before it.")
    tool_calls: tuple[ToolCallPiece, ...] | None = None
    logprobs: tuple[TokenLogprob, ...] | None = Field(
        default=None, description="One for each token that had been held until now; none without being asked."
    )
    tokens: tuple[SpelledToken, ...] | None = Field(
        default=None, description="The answer's own, like `logprobs`: for a request with return_token_ids."
    )
    prompt: PromptPiece | None = Field(default=None, description="For a request that asked for its tokens.")
    finish_reason: FinishReason | None = Field(
        default=None, description="This answer ends here, and others go on; of the last one the End says it."
    )

    @property
    def says_something(self) -> bool:
        """To the one who reads the answer."""
        return bool(
            self.text or self.reasoning or self.tool_calls or self.logprobs or self.tokens or self.prompt
        )


class Timings(WireModel):
    """Unix times in seconds, as the engine saw them."""

    queued_at: float
    scheduled_at: float | None = None
    first_token_at: float | None = None
    finished_at: float


class End(FrameBase):
    """The last frame of a successful (or cancelled) answer."""

    kind: Literal["end"] = Field(default="end")
    finish_reason: FinishReason = Field(description="Of the first answer, or of all.")
    finish_reasons: tuple[FinishReason, ...] = Field(
        default=(), description="Of each answer by index, where there are several."
    )
    usage: Usage = Field(description="Of the whole answer, whichever attempts gave it.")
    blocks_freed: int = Field(default=0, ge=0, description="KV blocks that this request gave back.")
    timings: Timings | None = None

    @property
    def reasons(self) -> tuple[FinishReason, ...]:
        """Of each answer, by index."""
        return self.finish_reasons or (self.finish_reason,)


class Error(FrameBase):
    """An attempt failed. From an engine it is advice to the gateway, which may try again; `final` ends
    the request."""

    kind: Literal["error"] = Field(default="error")
    seq: int = -1
    error: ErrorBody
    final: bool = True
    usage: Usage | None = None


Frame = Annotated[Held | Prologue | Data | End | Error, Field(discriminator="kind")]

_ADAPTER: TypeAdapter[Held | Prologue | Data | End | Error] = TypeAdapter(Frame)


def encode_frame(frame: Held | Prologue | Data | End | Error) -> bytes:
    """JSON; `kind` is always in it, so that a reader can tell frames apart."""
    return frame.encode()


def decode_frame(payload: bytes) -> Held | Prologue | Data | End | Error:
    """Raises MalformedMessage."""
    try:
        return _ADAPTER.validate_json(payload)
    except ValidationError as error:
        raise malformed("Frame", error) from None


class FrameBatch(WireModel):
    """Frames that were sent at one moment, of one request or several; each means what it means alone. The
    word `batch` stands in the subject where a request's id stands else. Only for who says in its lease that
    it reads them."""

    frames: tuple[Frame, ...] = ()


def join_frames(encoded: Sequence[bytes]) -> bytes:
    """The FrameBatch of frames that are JSON already."""
    return b'{"frames":[' + b",".join(encoded) + b"]}"


class Resend(WireModel):
    """To `resend.SENDER.RID`: the frames of `attempt` from `first_seq` on, once more, in a `Resent`."""

    attempt: int = Field(ge=1)
    first_seq: int = Field(ge=0)


class Resent(WireModel):
    frames: tuple[Frame, ...] = ()
    available: bool = Field(
        description="False: the ring buffer no longer holds them, or the request is unknown."
    )


def join_resent(encoded: Sequence[bytes]) -> bytes:
    """The Resent of frames that are JSON already."""
    return b'{"available":true,"frames":[' + b",".join(encoded) + b"]}"


class Cancel(WireModel):
    """Broadcast on `cancel.RID`. Whoever holds a part of the request stops and replies `CancelAck`."""

    request_id: RequestId
    reason: Literal[
        "client_disconnected",
        "deadline",
        "slow_consumer",
        "lease_lost",
        "superseded",
        "operator",
        "content_filter",
        "stream_broken",
    ]
    attempt: int | None = Field(
        default=None, description="Only this engine attempt; None: the whole request."
    )
    run_id: str | None = Field(
        default=None,
        description="The run that is meant. With it, a cancel that overtakes its request is remembered.",
    )
    never_heard: bool = Field(
        default=False,
        description="Its gateway gave the attempt up before it heard that a replica has it: on no bill.",
    )


class CancelAck(WireModel):
    stop: Service
    instance: SubjectToken
    blocks_freed: int | None = Field(
        default=None, ge=0, description="Engine: KV blocks freed by this cancel."
    )
