"""What one engine attempt did: its replica, what it emitted, how it ended. The ledger row is made of it.

It counts the emitted token ids: they are what cancelled work is billed by when the engine can't say any more,
and what another replica would have to be given to go on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, FinishReason, ToolCallPiece, Usage
from baton_contracts.records import Outcome, UsageRecord


@dataclass
class Attempt:
    number: int
    model: str
    started_at: float
    """Unix time in seconds."""
    replica: str | None = None
    """None until a replica accepted: then no model has been called yet."""
    token_ids: list[int] = field(default_factory=list[int])
    pieces: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, ToolCallPiece] = field(default_factory=dict[int, ToolCallPiece])
    can_be_repeated: bool = True
    """From what is kept here: there was one answer, and nothing but what a cache keeps of it."""
    usage: Usage | None = None
    outcome: Outcome | None = None
    finish_reason: FinishReason | None = None
    error: ErrorBody | None = None
    num_pieces: int = 0
    """What another server sent, which names no token ids: about one token each."""
    elsewhere: bool = False
    """It failed for a reason of the place: another one may be tried at once."""
    confirmed: bool = False
    """The engine itself said the last word, so everybody who listens knows that it is over."""

    @property
    def over(self) -> bool:
        return self.outcome is not None

    @property
    def has_content(self) -> bool:
        return bool(self.token_ids or self.pieces or self.num_pieces)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, frame: Data) -> None:
        self.token_ids.extend(frame.token_ids)
        if frame.index or frame.logprobs or frame.tokens or frame.prompt:
            self.can_be_repeated = False
            return
        if frame.text:
            self.pieces.append(frame.text)
        if frame.reasoning:
            self.reasoning.append(frame.reasoning)
        for piece in frame.tool_calls or ():
            begun = self.calls.get(piece.index)
            self.calls[piece.index] = begun.then(piece) if begun else piece

    def end(self, frame: End) -> None:
        self.usage, self.finish_reason, self.confirmed = frame.usage, frame.finish_reason, True
        self.outcome = "cancelled" if frame.finish_reason == "cancelled" else "finished"

    def fail(self, error: ErrorBody, usage: Usage | None = None) -> None:
        self.outcome, self.error = "error", error
        self.usage = usage or self.usage

    def cancel(self) -> None:
        """Given up by its client, and the engine's own last word did not come."""
        self.outcome, self.finish_reason = "cancelled", "cancelled"

    def record(self, envelope: Envelope, ended_at: float) -> UsageRecord:
        """The ledger row. Without the engine's count, what was emitted is what was used."""
        assert self.outcome is not None, "an attempt is booked when it is over"
        return UsageRecord(
            request_id=envelope.request_id,
            run_id=envelope.run_id,
            attempt=self.number,
            tenant=envelope.tenant,
            model=self.model,
            replica=self.replica or "",
            usage=self.usage or Usage(completion_tokens=len(self.token_ids) or self.num_pieces),
            outcome=self.outcome,
            finish_reason=self.finish_reason,
            error_code=self.error.code if self.error else None,
            started_at=self.started_at,
            ended_at=ended_at,
        )
