"""Answers in OpenAI's form: the objects that streamed and whole answers share, and the whole one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from baton_contracts.frames import Data, FinishReason, RatedToken, TokenLogprob, ToolCallPiece, Usage
from baton_contracts.prompt import ToolCall

SYSTEM_FINGERPRINT = "baton-1"


@dataclass
class AnswerParts:
    """One answer of a request, as far as it has come."""

    texts: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: dict[int, ToolCallPiece] = field(default_factory=dict[int, ToolCallPiece])
    logprobs: list[TokenLogprob] = field(default_factory=list[TokenLogprob])

    def add(self, frame: Data) -> None:
        if frame.text:
            self.texts.append(frame.text)
        if frame.reasoning:
            self.reasoning.append(frame.reasoning)
        for piece in frame.tool_calls or ():
            begun = self.calls.get(piece.index)
            self.calls[piece.index] = begun.then(piece) if begun else piece
        self.logprobs.extend(frame.logprobs or ())

    @property
    def text(self) -> str:
        return "".join(self.texts)

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


def logprobs_object(entries: Sequence[TokenLogprob]) -> dict[str, Any]:
    content = [_rated(entry) | {"top_logprobs": [_rated(one) for one in entry.top]} for entry in entries]
    return {"content": content, "refusal": None}


def _rated(token: RatedToken) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.logprob, "bytes": token.token_bytes}


def whole_answer(
    request_id: str,
    model: str,
    created: int,
    answers: Sequence[AnswerParts],
    reasons: Sequence[FinishReason],
    usage: Usage,
    citations: tuple[str, ...],
    *,
    with_logprobs: bool = False,
) -> bytes:
    """The body of an answer that is not streamed: what the chunks of the same answer add up to."""
    choices = [
        {
            "index": index,
            "message": _message(parts, citations),
            "logprobs": logprobs_object(parts.logprobs) if with_logprobs else None,
            "finish_reason": reason,
        }
        for index, (parts, reason) in enumerate(zip(answers, reasons, strict=True))
    ]
    answer = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "system_fingerprint": SYSTEM_FINGERPRINT,
        "choices": choices,
        "usage": usage_object(usage),
    }
    return orjson.dumps(answer)


def _message(parts: AnswerParts, citations: tuple[str, ...]) -> dict[str, object]:
    text = parts.text
    content = None if parts.calls and not text else text
    message: dict[str, object] = {"role": "assistant", "content": content, "refusal": None}
    if parts.reasoning:
        message["reasoning"] = message["reasoning_content"] = "".join(parts.reasoning)
    if parts.calls:
        message["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for _, call in sorted(parts.calls.items())
        ]
    if citations:
        message["baton"] = {"citations": citations}
    return message
