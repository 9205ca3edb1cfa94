"""What has come of one answer, and what is kept of it: conversation record, figures of its span, metrics.

Owns the text and its times. Knows nothing of how the answer came or how it is sent.
"""

from __future__ import annotations

from baton_contracts.envelope import Envelope
from baton_contracts.frames import Data, End, Prologue
from baton_contracts.prompt import Message
from baton_contracts.records import ConversationRecord, StoredMessage
from baton_edge_api.answer_objects import AnswerParts
from baton_edge_api.conversation_log import ConversationLog
from baton_edge_api.metrics import Metrics
from baton_edge_api.request_trace import RequestTrace
from baton_edge_api.validation import ChatQuestion


class AnswerSoFar:
    def __init__(
        self, envelope: Envelope, question: ChatQuestion, trace: RequestTrace, began: float, asked_at: float
    ) -> None:
        self._envelope = envelope
        self._question = question
        self._trace = trace
        self._began = began
        self._asked_at = asked_at
        self.answers = [AnswerParts() for _ in range(question.chat.sampling.n)]
        self._times: list[float] = []
        self._recorded = False
        self.prologue: Prologue | None = None
        self.end: End | None = None

    def add(self, frame: Data, at: float) -> None:
        """`at` is of the same clock as `began`, in seconds."""
        if frame.says_something and frame.index < len(self.answers):
            self.answers[frame.index].add(frame)
            self._times.append(at)

    async def keep(self, conversations: ConversationLog, seconds: float, *, cut_short: bool) -> None:
        """Once: the first call counts. An answer that never began is not kept; of several the first is."""
        prologue, end = self.prologue, self.end
        if prologue is None or self._recorded:
            return
        self._recorded = True
        envelope, began, first = self._envelope, self._trace.wall(), self.answers[0]
        record = ConversationRecord(
            request_id=envelope.request_id,
            run_id=envelope.run_id,
            conversation_id=envelope.conversation_id,
            tenant=envelope.tenant,
            model=prologue.model,
            asked=tuple(_stored(message) for message in self._question.chat.messages),
            answer=first.text,
            tool_calls=first.whole_calls,
            cut_short=cut_short,
            finish_reason=end.finish_reason if end else None,
            created_at=self._asked_at,
        )
        stored = await conversations.keep(record, seconds)
        self._trace.span("record", began, stored=stored)

    def describe(self) -> None:
        """Puts the figures into the attributes of the span."""
        attributes, times, end = self._trace.attributes, self._times, self.end
        attributes["chunks"] = len(times)
        if times:
            attributes["ttft_ms"] = round((times[0] - self._began) * 1000, 3)
        if end is None:
            return
        attributes["finish_reason"] = end.finish_reason
        attributes["prompt_tokens"] = end.usage.prompt_tokens
        attributes["completion_tokens"] = end.usage.completion_tokens
        attributes.setdefault("blocks_freed", end.blocks_freed)
        if times and end.usage.completion_tokens > 1:
            mean = (times[-1] - times[0]) / (end.usage.completion_tokens - 1)
            attributes["tpot_ms"] = round(mean * 1000, 3)

    def count(self, metrics: Metrics, ended: float) -> None:
        """Of an answer that came to its end."""
        if self.prologue and self.end:
            metrics.finished(
                self.prologue.model,
                self.end.finish_reason,
                self.end.usage,
                self._times,
                began=self._began,
                ended=ended,
            )
            if self.end.timings:
                metrics.engine_took(self.prologue.model, self.end.timings)


def _stored(message: Message) -> StoredMessage:
    return StoredMessage(
        role=message.role,
        content=message.text,
        name=message.name,
        tool_calls=message.tool_calls,
        tool_call_id=message.tool_call_id,
    )
