"""One attempt at another server: the question out, the answer in, and on as numbered frames like an engine's.

Owns the connection until the answer is over, and how long its silences may last. The first frame goes out
with the first piece of the answer, so that an error before it is still an HTTP status; to a stream that waits
for long it goes out before, so that the client can be kept waiting. Does not know what follows a failure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import aiohttp
import orjson

from baton_common.frame_sender import FrameStream, NumberedFrame
from baton_common.routes import Target
from baton_contracts.frames import Data, End, Prologue, Usage
from baton_contracts.prompt import ChatRequest, Prompt
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.providers.answer_reader import AnswerReader, NoAnswer, ProviderError
from baton_llm_gateway.providers.connections import Connections
from baton_llm_gateway.providers.event_stream import Event, EventReader, EventTooLarge
from baton_llm_gateway.providers.failures import Failure, broken, from_stream, refused
from baton_llm_gateway.providers.piece import Piece
from baton_llm_gateway.providers.request_body import request_body

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 10.0
"""A streaming client is told that its answer will come, even if nothing came of it yet."""
MAX_ANSWER_BYTES = 32 * 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
TAIL_SECONDS = 0.2
"""How long the end of the body is waited for after the end of the answer, to use the connection again."""
CHARACTERS_A_TOKEN = 4


class ProviderCall:
    """`prologue` is sent on `stream` first; `is_given_up` says whether anybody still listens."""

    def __init__(
        self,
        connections: Connections,
        target: Target,
        chat: ChatRequest,
        prompt: Prompt,
        attempt: Attempt,
        stream: FrameStream,
        prologue: Prologue,
        is_given_up: Callable[[], bool],
    ) -> None:
        self._connections = connections
        self._target = target
        self._chat = chat
        self._prompt = prompt
        self._attempt = attempt
        self._stream = stream
        self._prologue = prologue
        self._is_given_up = is_given_up
        self._reader = AnswerReader(chat.sampling.n)
        self._loop = asyncio.get_running_loop()
        self._scope = asyncio.timeout(None)
        self._silence = 0.0
        self._has_begun = False
        self._early: asyncio.Task[Prologue] | None = None
        self.failure: Failure | None = None

    def wake(self) -> None:
        """Looks at once whether it was given up; an answer that is complete is not."""
        if self._is_given_up() and not self._attempt.over:
            try:
                self._scope.reschedule(self._loop.time())
            except RuntimeError:
                return  # it is not waiting any more, or not yet: then it looks itself

    async def run(self) -> None:
        """The attempt is over afterwards, and its last frame sent if it ended well. Raises RequestFailed for
        a question that this server would not understand."""
        body = request_body(self._target, self._chat, self._prompt)
        patience = self._loop.call_later(PATIENCE_SECONDS, self._begin_early) if self._chat.stream else None
        try:
            async with self._scope:
                self.wake()
                self._expect(self._target.first_token_seconds if self._chat.stream else None)
                await self._exchange(body)
        except TimeoutError as error:
            if self._attempt.over:
                return  # it came while the rest of the connection was read
            if self._is_given_up():
                await self._give_up()
            elif isinstance(error, aiohttp.ClientError):
                self._fail(broken(self._target, "can't be reached."))
            else:
                self._fail(broken(self._target, f"sent nothing for {self._silence:g} s."))
        except (aiohttp.ClientError, OSError, EventTooLarge, NoAnswer, ValueError) as error:
            log.info("%s: %s", self._target.name, _for_the_log(error))
            if not self._attempt.over:
                self._fail(broken(self._target, _in_words(error, self._reader)))
        except ProviderError as error:
            self._fail(from_stream(self._target, error.error))
        except asyncio.CancelledError:  # the deadline, or this process ends: what came by now was used
            if self._attempt.replica and not self._attempt.over:
                self._attempt.usage = self._usage()
            raise
        finally:
            if patience:
                patience.cancel()

    async def _exchange(self, body: bytes) -> None:
        response = await self._connections.post(self._target, body)
        try:
            if response.status != 200:
                said = await _beginning(response, MAX_ERROR_BYTES)
                self._fail(refused(self._target, response.status, response.headers, said))
                return
            self._attempt.replica = self._target.name
            if response.content_type == "text/event-stream":
                await self._read_events(response)
            else:
                self._reader.take_whole(orjson.loads(await self._whole_body(response)))
            if await self._finish():
                await self._read_tail(response)
        finally:
            response.release()  # used again if it was read to its end, else closed at once

    async def _whole_body(self, response: aiohttp.ClientResponse) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while piece := await response.content.readany():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise NoAnswer(f"its answer has over {MAX_ANSWER_BYTES} bytes")
        return b"".join(pieces)

    async def _read_events(self, response: aiohttp.ClientResponse) -> None:
        """Until `[DONE]`, or the end of the body. What came last is not sent yet."""
        events = EventReader()
        while read := await response.content.readany():
            if self._take(events.feed(read)):
                return
            await self._send(self._added())
            if self._attempt.has_content:
                self._expect(self._target.stall_seconds)
        self._take(events.close())

    def _take(self, events: list[Event]) -> bool:
        """True: the answer said that it is over."""
        for event in events:
            if event.data == b"[DONE]":
                return True
            chunk: object = orjson.loads(event.data)
            self._reader.take({"error": chunk} if event.name == "error" else chunk)
        return False

    def _added(self) -> list[NumberedFrame]:
        """What came since the last call."""
        frames: list[NumberedFrame] = []
        for piece in self._reader.pieces():
            for part in piece.in_parts():
                frame = _frame(self._prologue, part)
                self._attempt.add(frame)
                frames.append(frame)
        self._attempt.num_pieces = self._reader.num_tokens
        return frames

    async def _send(self, frames: list[NumberedFrame]) -> None:
        """Behind the prologue, which may be on its way already."""
        if not frames:
            return
        if self._early:
            early, self._early = self._early, None
            await early
        if not self._has_begun:
            self._has_begun = True
            frames = [self._prologue, *frames]
        await self._stream.send_all(frames)

    def _begin_early(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self._early = asyncio.create_task(self._stream.send(self._prologue))

    async def _finish(self) -> bool:
        """False: the body ended before the answer did. What follows an answer waits until it is out."""
        last, reasons = self._added(), self._reader.reasons
        if reasons is None:
            await self._send(last)
            self._fail(broken(self._target, "closed the connection in the middle of its answer."))
            return False
        self._expect(None)  # it is whole: no silence can break it off any more
        end = End(
            request_id=self._prologue.request_id,
            sender=self._prologue.sender,
            seq=0,
            finish_reason=reasons[0],
            finish_reasons=reasons if len(reasons) > 1 else (),
            usage=self._usage(),
        )
        await self._send([*last, end])
        self._attempt.end(end)
        await asyncio.sleep(0)
        return True

    async def _give_up(self) -> None:
        """Nobody listens any more: those on the way who wait for a last word get it."""
        if not self._has_begun:
            self._attempt.cancel()
            self._attempt.usage = self._usage() if self._attempt.replica else None
            return
        end = End(
            request_id=self._prologue.request_id,
            sender=self._prologue.sender,
            seq=0,
            finish_reason="cancelled",
            usage=self._usage(),
        )
        await self._send([end])
        self._attempt.end(end)

    def _fail(self, failure: Failure) -> None:
        self.failure = failure
        self._attempt.elsewhere = failure.elsewhere
        self._attempt.fail(failure.error, self._usage() if self._attempt.replica else None)

    def _usage(self) -> Usage:
        """The server's count; without one, what was asked by its length and what came by its pieces."""
        if self._reader.usage:
            return self._reader.usage
        estimate = self._prompt.num_characters // CHARACTERS_A_TOKEN + 4 * len(self._prompt.messages)
        return Usage(prompt_tokens=estimate, completion_tokens=self._reader.num_tokens)

    def _expect(self, seconds: float | None) -> None:
        """Something, within `seconds`."""
        self._silence = seconds or 0.0
        if not self._is_given_up():
            self._scope.reschedule(None if seconds is None else self._loop.time() + seconds)

    async def _read_tail(self, response: aiohttp.ClientResponse) -> None:
        if not response.content.at_eof():
            try:
                async with asyncio.timeout(TAIL_SECONDS):
                    await response.content.readany()
            except (TimeoutError, aiohttp.ClientError):
                return


async def _beginning(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    """Of a body that may come in several pieces."""
    read = b""
    while len(read) < most_bytes and (piece := await response.content.readany()):
        read += piece
    return read[:most_bytes]


def _frame(prologue: Prologue, piece: Piece) -> Data:
    return Data(
        request_id=prologue.request_id,
        sender=prologue.sender,
        seq=0,
        index=piece.index,
        text="".join(piece.texts),
        reasoning="".join(piece.reasoning) or None,
        tool_calls=tuple(piece.calls.values()) or None,
        logprobs=tuple(piece.logprobs) or None,
    )


def _for_the_log(error: Exception) -> str:
    """A repr may hold our headers, key and all; what judges values shows them, and they are people's text."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, aiohttp.ClientError | OSError) else name


def _in_words(error: Exception, reader: AnswerReader) -> str:
    if isinstance(error, aiohttp.ClientConnectorError):
        return "can't be reached."
    if isinstance(error, NoAnswer | EventTooLarge):
        return f"can't be understood: {error}."
    if isinstance(error, orjson.JSONDecodeError):
        return "can't be understood: it is no JSON."
    if isinstance(error, ValueError) and not isinstance(error, aiohttp.ClientError):
        return "can't be understood: it holds values that no answer has."
    return "broke off." if reader.num_tokens else "closed the connection without an answer."
