"""The bytes of a streamed chat completion.

Owns the form of each event. What does not change within a stream is put together once; a token costs one
JSON string. Knows nothing of when events are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from baton_contracts.frames import Data, FinishReason, ToolCallPiece, Usage
from baton_edge_api.answer_objects import SYSTEM_FINGERPRINT, call_delta, usage_object
from baton_edge_api.chat_form import PLAIN, ChatForm
from baton_edge_api.token_objects import chat_logprobs, prompt_token_ids

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_NO_LOGPROBS = b'},"logprobs":null'


class ChunkWriter:
    """Events of one stream: one id, one creation time, one model in all of them."""

    def __init__(
        self, request_id: str, model: str, created: int, form: ChatForm = PLAIN, *, include_usage: bool
    ) -> None:
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
        self._form = form
        self._prompt_ids: list[int] = []
        """To be told with the answer's first event."""
        self.include_usage = include_usage

    def role(self, index: int = 0) -> bytes:
        """The first event of an answer."""
        delta = b'"role":"assistant","content":' + orjson.dumps(self._form.echo)
        return self._choice(index) + delta + _NO_LOGPROBS + self._unfinished

    def data(self, frame: Data) -> bytes:
        """What one frame added to its answer, and its end if others go on; nothing if all is held back."""
        end = b"" if frame.finish_reason is None else self._end(frame.index, frame.finish_reason)
        return self._piece(frame) + end if frame.says_something else end

    def _piece(self, frame: Data) -> bytes:
        members = self._members(frame)
        told = frame.logprobs or frame.tokens
        if frame.prompt:
            self._prompt_ids += prompt_token_ids((frame.prompt,))
        if not members and not told:
            return b""
        if not members:
            members = [b'"content":""']
        logprobs = _NO_LOGPROBS
        if frame.logprobs and self._form.with_logprobs:
            told = chat_logprobs(frame.logprobs, as_ids=self._form.tokens_as_ids)
            logprobs = b'},"logprobs":' + orjson.dumps(told)
        ending = self._with_ids(frame) if self._form.token_ids else self._unfinished
        return self._choice(frame.index) + b",".join(members) + logprobs + ending

    def _members(self, frame: Data) -> list[bytes]:
        """Of the delta."""
        members: list[bytes] = []
        if frame.reasoning and self._form.reasoning:
            text = orjson.dumps(frame.reasoning)
            members += (b'"reasoning":' + text, b'"reasoning_content":' + text)
        if frame.text:
            members.append(b'"content":' + orjson.dumps(frame.text))
        if frame.tool_calls and self._form.functions:
            members += (_old_call(piece) for piece in frame.tool_calls[:1])
        elif frame.tool_calls:
            members.append(b'"tool_calls":' + orjson.dumps([call_delta(piece) for piece in frame.tool_calls]))
        return members

    def _with_ids(self, frame: Data) -> bytes:
        ids = orjson.dumps([token.token_id for token in frame.tokens or ()])
        prompt, self._prompt_ids = self._prompt_ids, []
        beside = b',"prompt_token_ids":' + orjson.dumps(prompt) if prompt else b""
        return b',"token_ids":' + ids + b',"finish_reason":null}]' + beside + self._tail

    def finish(self, reasons: Sequence[FinishReason], citations: tuple[str, ...]) -> bytes:
        """The last event of each answer that has not ended before; the sources go with the last one."""
        rest = [index for index in range(len(reasons)) if index not in self._ended]
        sources = b',"baton":' + orjson.dumps({"citations": citations}) if citations else b""
        return b"".join(
            self._end(index, reasons[index], sources if index == rest[-1] else b"") for index in rest
        )

    def _end(self, index: int, reason: FinishReason, extras: bytes = b"") -> bytes:
        self._ended.add(index)
        ending = _NO_LOGPROBS + b',"finish_reason":' + orjson.dumps(self._form.reason(reason)) + b"}]"
        return self._choice(index) + ending + extras + self._tail

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"

    def _choice(self, index: int) -> bytes:
        found = self._choices.get(index)
        if found is None:
            found = self._choices[index] = self._head + b'{"index":%d,"delta":{' % index
        return found


def _old_call(piece: ToolCallPiece) -> bytes:
    name = {} if piece.name is None else {"name": piece.name}
    return b'"function_call":' + orjson.dumps(name | {"arguments": piece.arguments})
