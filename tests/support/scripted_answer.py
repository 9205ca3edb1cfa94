"""What the scripted engine says to one request: its words, its deltas, how it ends.

Owns what was said and read of it. Knows nothing of queues, places and steps of others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from baton_engine import (
    EngineRequest,
    RequestDelta,
    RequestFailure,
    Timings,
    TokenLogprobs,
    Usage,
)
from baton_engine.deltas import FinishReason
from baton_engine.text.answer_reader import AnswerPart, AnswerReader

WORDS = ("The ", "answer ", "is ", "forty-", "two.")


@dataclass(frozen=True)
class Script:
    words: tuple[str, ...] = WORDS
    stall_after: int | None = None
    """Emit that many tokens, then nothing, for ever."""
    error_after: int | None = None
    """Emit that many tokens, then fail this request."""
    max_running: int = 8
    max_waiting: int = 64
    context: int = 1000
    kv_blocks: int = 4096
    step_seconds: float = 0.001


@dataclass(eq=False)
class ScriptedAnswer:
    """Every one of its answers says the same words, in step."""

    asked: EngineRequest
    on_delta: Callable[[RequestDelta], None]
    readers: dict[int, AnswerReader] = field(default_factory=dict[int, AnswerReader])
    queued_at: float = field(default_factory=time.time)
    scheduled_at: float | None = None
    first_token_at: float | None = None
    emitted: int = 0
    thought: int = 0
    """Words that were thinking, of all answers."""

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.asked.prompt_token_ids or ())

    @property
    def num_answers(self) -> int:
        """Known to be several from the first token on."""
        return self.asked.sampling.n if self.emitted else 1

    def num_resumed(self, index: int = 0) -> int:
        """Words that another engine has said already."""
        resumed = (self.asked.resume_token_ids, *self.asked.resume_others)
        return len(resumed[index]) if index < len(resumed) else 0

    def resume(self, words: tuple[str, ...]) -> None:
        """All words that another engine has said are read, and the next ones are said."""
        self.emitted = min(self.num_resumed(index) for index in range(self.asked.sampling.n))
        for index in range(self.num_answers):
            for at in range(self.emitted):
                self.read(index, words[at % len(words)], at_end=False)

    def read(self, index: int, text: str, *, at_end: bool) -> AnswerPart:
        asked = self.asked.output_format
        if asked.is_plain:
            return AnswerPart(text)
        if index not in self.readers:
            self.readers[index] = AnswerReader(asked, f"{self.asked.request_id}/{index}")
        was_thinking = self.readers[index].is_thinking
        part = self.readers[index].push(text)
        self.thought += was_thinking or self.readers[index].is_thinking
        return part.then(self.readers[index].finish()) if at_end else part

    def logprobs(self) -> tuple[TokenLogprobs, ...]:
        """One a word: minus its number, and as many better ones as were asked for."""
        top = self.asked.sampling.logprobs
        if top is None:
            return ()
        return (
            TokenLogprobs(self.emitted, -float(self.emitted), tuple((at, -at / 10) for at in range(top))),
        )

    @property
    def num_blocks(self) -> int:
        return -(-(self.num_prompt_tokens + self.emitted) // 16) if self.scheduled_at else 0

    def step(self, script: Script) -> bool:
        """Says the next word in each answer. True: that was the end."""
        if self.emitted == script.error_after:
            self.end("error", RequestFailure("invalid_logits", "not a number"))
            return True
        if self.emitted == script.stall_after:
            return False
        if reason := self._reason_to_end(script):  # it was so when it came
            self.end(reason)
            return True
        word = script.words[self.emitted % len(script.words)]
        self.emitted += 1
        self.first_token_at = self.first_token_at or time.time()
        if reason := self._reason_to_end(script):
            self.end(reason, text=word, token_ids=(self.emitted,))
            return True
        for index in range(self.num_answers):
            part = self.read(index, word, at_end=False)
            if self.emitted > self.num_resumed(index):
                self.on_delta(self._delta(index, part, (self.emitted,)))
        return False

    def _reason_to_end(self, script: Script) -> FinishReason | None:
        asked = self.asked.sampling
        if self.emitted == len(script.words) and not asked.ignore_eos:
            return "stop"
        return "length" if self.emitted == asked.max_tokens else None

    def _delta(self, index: int, part: AnswerPart, token_ids: tuple[int, ...]) -> RequestDelta:
        return RequestDelta(
            self.asked.request_id,
            part.text,
            token_ids,
            index,
            self.logprobs() if token_ids else (),
            reasoning=part.reasoning,
            tool_calls=part.tool_calls,
        )

    def end(
        self,
        reason: FinishReason,
        failure: RequestFailure | None = None,
        *,
        text: str = "",
        token_ids: tuple[int, ...] = (),
    ) -> None:
        """All answers, with their last word if there is one."""
        timings = Timings(self.queued_at, self.scheduled_at, self.first_token_at, time.time())
        for index in range(self.num_answers):
            part = self.read(index, text, at_end=True)
            if text and self.emitted <= self.num_resumed(index):
                part = AnswerPart()
            calls = index in self.readers and self.readers[index].num_calls
            said = max(0, self.emitted - self.num_resumed(index))
            self.on_delta(
                replace(
                    self._delta(index, part, token_ids),
                    finish_reason="tool_calls" if calls and reason == "stop" else reason,
                    error=failure,
                    usage=Usage(self.num_prompt_tokens, 0, said, self.thought // self.num_answers),
                    num_left=self.num_answers - 1 - index,
                    blocks_freed=self.num_blocks if index == 0 else 0,
                    timings=timings,
                )
            )
