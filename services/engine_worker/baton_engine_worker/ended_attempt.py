"""What has become of an attempt, as its gateway would book it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from baton_contracts.envelope import Envelope
from baton_contracts.errors import ErrorCode
from baton_contracts.frames import Cancel, FinishReason, Usage
from baton_contracts.records import Outcome, UsageRecord
from baton_engine_worker.answer_frames import AnswerFrames


@dataclass
class Causes:
    """Why it may have ended before its answer did."""

    cancel: Cancel | None = None
    peer_lost: bool = False
    """Somebody who waits for the answer is gone."""
    gateway_lost: bool = False
    is_nobodys: bool = False
    """Its gateway had given it up before it heard that anybody has it, whoever else gave it up then."""
    handed_back: bool = False
    """This process ends first."""

    @property
    def lost_sight(self) -> bool:
        """Nobody wanted it to end: what we have waited for may still be there."""
        return self.peer_lost and self.cancel is None

    @property
    def goes_on_elsewhere(self) -> bool:
        return self.handed_back or (self.cancel is not None and self.cancel.attempt is not None)


def record_of(
    envelope: Envelope,
    answers: AnswerFrames,
    causes: Causes,
    *,
    model: str,
    replica: str,
    started_at: float,
    ended_at: float,
) -> UsageRecord:
    outcome, finish_reason, error_code = _outcome(answers, causes)
    usage = answers.usage().model_copy(update={"completion_tokens": answers.num_own_tokens})
    if causes.goes_on_elsewhere and not answers.are_whole:  # with its prompt, on another attempt's bill
        usage = Usage(completion_tokens=answers.num_own_tokens)
        outcome, finish_reason = ("migrated" if usage.completion_tokens else "error"), None
    return UsageRecord(
        request_id=envelope.request_id,
        run_id=envelope.run_id,
        attempt=envelope.attempt,
        tenant=envelope.tenant,
        model=model,
        replica=replica,
        usage=usage,
        outcome=outcome,
        finish_reason=finish_reason,
        error_code=error_code,
        started_at=started_at,
        ended_at=ended_at,
    )


def _outcome(answers: AnswerFrames, causes: Causes) -> tuple[Outcome, FinishReason | None, ErrorCode | None]:
    if answers.are_whole:
        return "finished", answers.first_reason, None
    if causes.handed_back:
        return "error", None, "shutting_down"
    if causes.peer_lost:
        return "error", None, "stop_lost"
    if answers.has_failed:
        return "error", None, "stop_failed"
    return "cancelled", "cancelled", None
