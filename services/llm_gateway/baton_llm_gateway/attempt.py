"""What one engine attempt did: its replica, what it emitted, how it ended. The ledger row is made of it.

It counts the emitted token ids: they are what cancelled work is billed by when the engine can't say any more,
and what another replica is given to go on with. The rows of a run add up to what an undisturbed run would
have cost: each attempt counts the tokens that it added, and the prompt counts on the last one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Data, End, FinishReason, ToolCallPiece, Usage
from baton_contracts.records import Outcome, UsageRecord

TokenIds = tuple[tuple[int, ...], ...]
"""Of each answer, by index."""


@dataclass
class Attempt:
    number: int
    model: str
    started_at: float
    """Unix time in seconds."""
    replica: str | None = None
    """None until a replica accepted: then no model has been called yet."""
    resumed: TokenIds = ()
    """What earlier attempts sent: this one goes on behind it."""
    prompt_tokens: int = 0
    """As the engine counted them on accepting."""
    token_ids: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """What this attempt added, by index of the answer."""
    pieces: list[str] = field(default_factory=list[str])
    """Of the whole answer, like `reasoning` and `calls`: earlier attempts' too."""
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, ToolCallPiece] = field(default_factory=dict[int, ToolCallPiece])
    can_be_repeated: bool = True
    """From what is kept here: there was one answer, and nothing but what a cache keeps of it."""
    can_go_on: bool = True
    """Elsewhere: all that was said came with the ids of its tokens."""
    usage: Usage | None = None
    """Of the whole answer."""
    outcome: Outcome | None = None
    finish_reason: FinishReason | None = None
    error: ErrorBody | None = None
    num_pieces: int = 0
    """What another server sent, which names no token ids: about one token each."""
    elsewhere: bool = False
    """It failed for a reason of the place: another one may be tried at once."""
    end_frame: End | None = None
    tee: Callable[[str, Data], None] | None = None
    """Gets the model's name and each frame, for those who follow."""
    confirmed: bool = False
    """The engine itself said the last word, so everybody who listens knows that it is over."""
    superseded: bool = False

    @property
    def over(self) -> bool:
        return self.outcome is not None

    @property
    def has_begun(self) -> bool:
        """This attempt itself has said something."""
        return bool(self.token_ids or self.num_pieces) or not self.can_go_on

    @property
    def has_content(self) -> bool:
        """The client has a part of the answer, whoever sent it."""
        return self.has_begun or any(self.resumed)

    @property
    def lost_sight_of_us(self) -> bool:
        """Its replica gave it up of itself, and said so: of one that is gone nobody knows the usage."""
        error = self.error
        if error is None or self.usage is None:
            return False
        return (error.code, error.stop) == ("stop_lost", "engine_worker")

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def num_resumed(self) -> int:
        return sum(map(len, self.resumed))

    @property
    def num_tokens(self) -> int:
        """That this attempt added to the answers."""
        return sum(map(len, self.token_ids.values()))

    @property
    def emitted(self) -> TokenIds:
        """All that was sent up to now, of each answer."""
        num_answers = max(len(self.resumed), *(index + 1 for index in self.token_ids), 0)
        return tuple(
            (*(self.resumed[index] if index < len(self.resumed) else ()), *self.token_ids.get(index, ()))
            for index in range(num_answers)
        )

    def add(self, frame: Data) -> None:
        if self.tee:
            self.tee(self.model, frame)
        if frame.token_ids:
            self.token_ids.setdefault(frame.index, []).extend(frame.token_ids)
        elif frame.says_something and frame.prompt is None and not self._has_ids(frame.index):
            self.can_go_on = False
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
        self.end_frame = frame
        self.outcome = "cancelled" if frame.finish_reason == "cancelled" else "finished"

    def fail(self, error: ErrorBody, usage: Usage | None = None) -> None:
        self.outcome, self.error = "error", error
        self.usage = usage or self.usage

    def cancel(self) -> None:
        """Given up by its client, and the engine's own last word did not come."""
        self.outcome, self.finish_reason, self.error = "cancelled", "cancelled", None

    def next(self, model: str, started_at: float) -> Attempt:
        """The one after this: behind what was sent, or, if nothing was, from the start."""
        later = Attempt(self.number + 1, model, started_at, tee=self.tee)
        if not self.has_content:
            return later
        return replace(
            later,
            resumed=self.emitted,
            pieces=self.pieces,
            reasoning=self.reasoning,
            calls=self.calls,
            can_be_repeated=self.can_be_repeated,
        )

    def supersede(self) -> None:
        """Another replica has accepted the request: the run's prompt is on that one's bill."""
        self.superseded = True
        if self.has_content:
            self.outcome = "migrated"

    def record(self, envelope: Envelope, ended_at: float) -> UsageRecord:
        """The ledger row."""
        assert self.outcome is not None, "an attempt is booked when it is over"
        return UsageRecord(
            request_id=envelope.request_id,
            run_id=envelope.run_id,
            attempt=self.number,
            tenant=envelope.tenant,
            model=self.model,
            replica=self.replica or "",
            usage=self._bill(),
            outcome=self.outcome,
            finish_reason=self.finish_reason,
            error_code=self.error.code if self.error else None,
            started_at=self.started_at,
            ended_at=ended_at,
        )

    def _bill(self) -> Usage:
        """Without the engine's count, what was emitted is what was used."""
        if self.superseded:
            return Usage(completion_tokens=self.num_tokens)
        if self.usage is None:
            emitted = self.num_tokens or self.num_pieces
            return Usage(prompt_tokens=self.prompt_tokens, completion_tokens=emitted)
        own = max(0, self.usage.completion_tokens - self.num_resumed)
        return self.usage.model_copy(update={"completion_tokens": own})

    def _has_ids(self, index: int) -> bool:
        return index in self.token_ids or (index < len(self.resumed) and bool(self.resumed[index]))
