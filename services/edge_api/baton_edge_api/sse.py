"""The bytes of a streamed chat completion.

Owns the form of each event. What does not change within a stream is put together once; a token costs one
JSON string. Knows nothing of when events are sent.
"""

from __future__ import annotations

import orjson

from baton_contracts.frames import Usage

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

SYSTEM_FINGERPRINT = "baton-1"


def usage_object(usage: Usage) -> dict[str, object]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


class ChunkWriter:
    """Events of one stream: one id, one creation time, one model in all of them."""

    def __init__(self, request_id: str, model: str, created: int, *, include_usage: bool) -> None:
        head = {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "system_fingerprint": SYSTEM_FINGERPRINT,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1] + b',"choices":['
        self._choice = self._head + b'{"index":0,"delta":'
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._before = self._choice + b'{"content":'
        self._after = b'},"logprobs":null,"finish_reason":null}]' + self._tail
        self.include_usage = include_usage

    def role(self) -> bytes:
        delta = b'{"role":"assistant","content":""}'
        return self._choice + delta + b',"logprobs":null,"finish_reason":null}]' + self._tail

    def text(self, text: str) -> bytes:
        return self._before + orjson.dumps(text) + self._after

    def finish(self, reason: str, citations: tuple[str, ...]) -> bytes:
        last = b'{},"logprobs":null,"finish_reason":' + orjson.dumps(reason) + b"}]"
        extras = b',"baton":' + orjson.dumps({"citations": citations}) if citations else b""
        return self._choice + last + extras + self._tail

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"


def whole_answer(
    request_id: str,
    model: str,
    created: int,
    text: str,
    reason: str,
    usage: Usage,
    citations: tuple[str, ...],
) -> bytes:
    """The body of an answer that is not streamed."""
    message: dict[str, object] = {"role": "assistant", "content": text, "refusal": None}
    if citations:
        message["baton"] = {"citations": citations}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
    answer = {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": created,
        "model": model,
        "system_fingerprint": SYSTEM_FINGERPRINT,
        "choices": [choice],
        "usage": usage_object(usage),
    }
    return orjson.dumps(answer)
