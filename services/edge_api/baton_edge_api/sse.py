"""The bytes of a streamed chat completion.

Owns the form of each event. What does not change within a stream is put together once; a token costs one
JSON string. Knows nothing of when events are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from baton_contracts.frames import Data, FinishReason, Usage
from baton_edge_api.answer_objects import SYSTEM_FINGERPRINT, call_delta, logprobs_object, usage_object

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_NO_LOGPROBS = b'},"logprobs":null'


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
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._unfinished = b',"finish_reason":null}]' + self._tail
        self._choices: dict[int, bytes] = {}
        self._ended: set[int] = set()
        self.include_usage = include_usage

    def role(self, index: int = 0) -> bytes:
        """The first event of an answer."""
        delta = b'"role":"assistant","content":""'
        return self._choice(index) + delta + _NO_LOGPROBS + self._unfinished

    def data(self, frame: Data) -> bytes:
        """What one frame added to its answer, and its end if others go on; nothing if all is held back."""
        end = b"" if frame.finish_reason is None else self._end(frame.index, frame.finish_reason)
        return self._piece(frame) + end if frame.says_something else end

    def _piece(self, frame: Data) -> bytes:
        members: list[bytes] = []
        if frame.reasoning:
            text = orjson.dumps(frame.reasoning)
            members += (b'"reasoning":' + text, b'"reasoning_content":' + text)
        if frame.text or not (frame.reasoning or frame.tool_calls):
            members.append(b'"content":' + orjson.dumps(frame.text))
        if frame.tool_calls:
            members.append(b'"tool_calls":' + orjson.dumps([call_delta(piece) for piece in frame.tool_calls]))
        logprobs = _NO_LOGPROBS
        if frame.logprobs:
            logprobs = b'},"logprobs":' + orjson.dumps(logprobs_object(frame.logprobs))
        return self._choice(frame.index) + b",".join(members) + logprobs + self._unfinished

    def finish(self, reasons: Sequence[FinishReason], citations: tuple[str, ...]) -> bytes:
        """The last event of each answer that has not ended before; the sources go with the last one."""
        rest = [index for index in range(len(reasons)) if index not in self._ended]
        sources = b',"baton":' + orjson.dumps({"citations": citations}) if citations else b""
        return b"".join(
            self._end(index, reasons[index], sources if index == rest[-1] else b"") for index in rest
        )

    def _end(self, index: int, reason: FinishReason, extras: bytes = b"") -> bytes:
        self._ended.add(index)
        ending = _NO_LOGPROBS + b',"finish_reason":' + orjson.dumps(reason) + b"}]"
        return self._choice(index) + ending + extras + self._tail

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"

    def _choice(self, index: int) -> bytes:
        found = self._choices.get(index)
        if found is None:
            found = self._choices[index] = self._head + b'{"index":%d,"delta":{' % index
        return found
