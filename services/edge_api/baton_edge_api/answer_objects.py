"""Answers in OpenAI's form: the objects that streamed and whole answers share, and the whole one. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from baton_contracts.frames import (
    Data,
    FinishReason,
    PromptPiece,
    SpelledToken,
    TokenLogprob,
    ToolCallPiece,
    Usage,
)
from baton_contracts.prompt import ToolCall
from baton_edge_api.chat_form import PLAIN, ChatForm
from baton_edge_api.token_objects import chat_logprobs, prompt_logprobs, prompt_token_ids

SYSTEM_FINGERPRINT = "baton-1"


@dataclass
class AnswerParts:
    """One answer of a request, as far as it has come."""

    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, ToolCallPiece] = field(default_factory=dict[int, ToolCallPiece])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])
    tokens: list[SpelledToken] = field(default_factory=list[SpelledToken])
    prompt: list[PromptPiece] = field(default_factory=list[PromptPiece])

    def add(self, frame: Data) -> None:
        if frame.text:
            self.texts.append(frame.text)
        if frame.reasoning:
            self.reasoning.append(frame.reasoning)
        for piece in frame.tool_calls or ():
            begun = self.calls.get(piece.index)
            self.calls[piece.index] = begun.then(piece) if begun else piece
        self.logprobs.extend(frame.logprobs or ())
        self.tokens.extend(frame.tokens or ())
        if frame.prompt:
            self.prompt.append(frame.prompt)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    @property
    def mean_logprob(self) -> float:
        if not self.logprobs:
            return -math.inf
        return sum(entry.logprob for entry in self.logprobs) / len(self.logprobs)

    @property
    def whole_calls(self) -> tuple[ToolCall, ...]:
        """Those that could be run."""
        return tuple(
            ToolCall(call_id=call.call_id or "", name=call.name or "", arguments=call.arguments)
            for _, call in sorted(self.calls.items())
            if call.is_whole
        )


def usage_object(usage: Usage) -> dict[str, object]:
    counts: dict[str, object] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
    if usage.reasoning_tokens:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
    return counts


def call_delta(piece: ToolCallPiece) -> dict[str, Any]:
    """Id, type and name only where the call begins."""
    function: dict[str, str] = {"arguments": piece.arguments}
    if piece.name is None:
        return {"index": piece.index, "function": function}
    return {
        "index": piece.index,
        "id": piece.call_id,
        "type": "function",
        "function": {"name": piece.name} | function,
    }


def whole_answer(
    request_id: str,
    model: str,
    created: int,
    answers: Sequence[AnswerParts],
    reasons: Sequence[FinishReason],
    usage: Usage,
    citations: tuple[str, ...],
    form: ChatForm = PLAIN,
    *,
    prompt: Sequence[PromptPiece] = (),
) -> bytes:
    """The body of an answer that is not streamed: what the chunks of the same answer add up to. `prompt` is
    told where the form says so."""
    choices = [
        _choice(index, parts, form.reason(reason), citations, form)
        for index, (parts, reason) in enumerate(zip(answers, reasons, strict=True))
    ]
    answer: dict[str, Any] = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "system_fingerprint": SYSTEM_FINGERPRINT,
        "choices": choices,
        "usage": usage_object(usage),
    }
    if form.token_ids:
        answer["prompt_token_ids"] = prompt_token_ids(prompt)
    if form.prompt_logprobs:
        answer["prompt_logprobs"] = prompt_logprobs(prompt)
    return orjson.dumps(answer)


def _choice(
    index: int, parts: AnswerParts, reason: str, citations: tuple[str, ...], form: ChatForm
) -> dict[str, object]:
    told = chat_logprobs(parts.logprobs, as_ids=form.tokens_as_ids) if form.with_logprobs else None
    choice: dict[str, object] = {
        "index": index,
        "message": _message(parts, citations, form),
        "logprobs": told,
        "finish_reason": reason,
    }
    if form.token_ids:
        choice["token_ids"] = [token.token_id for token in parts.tokens]
    return choice


def _message(parts: AnswerParts, citations: tuple[str, ...], form: ChatForm) -> dict[str, object]:
    text = form.echo + parts.text
    content = None if parts.calls and not text else text
    message: dict[str, object] = {"role": "assistant", "content": content, "refusal": None}
    if parts.reasoning and form.reasoning:
        message["reasoning"] = message["reasoning_content"] = "".join(parts.reasoning)
    calls = [call for _, call in sorted(parts.calls.items())]
    if calls and form.functions:
        message["function_call"] = _function(calls[0])
    elif calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": _function(call)} for call in calls
        ]
    if citations:
        message["baton"] = {"citations": citations}
    return message


def _function(call: ToolCallPiece) -> dict[str, object]:
    return {"name": call.name, "arguments": call.arguments}
