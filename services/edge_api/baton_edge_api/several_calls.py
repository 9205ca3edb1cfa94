"""Several requests on the relay that are one answer: a completion's prompts, their frames joined.

Each has its own id, seat, attempts and ledger row; the first has the id of the HTTP request. Answer j of
request i is choice i·n+j. The first failure is the failure of all. Same face as RelayCall.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial

from baton_common.errors import RequestFailed
from baton_common.frame_inbox import FrameQueue
from baton_contracts.envelope import Envelope
from baton_contracts.frames import Data, End, FinishReason, Prologue, Usage
from baton_contracts.identifiers import request_ids_of
from baton_contracts.prompt import ChatRequest
from baton_edge_api.actor import Desk
from baton_edge_api.interruption import CancelReason, Interrupted
from baton_edge_api.relay_call import CancelOutcome, RelayCall

MAX_UNDER_WAY = 8
"""Of one HTTP request at a time: the others of all people want seats too."""
_MAX_FRAMES = 256
"""Joined and not yet taken. Beyond, the requests' own queues fill, and then the client is too slow."""


class SeveralCalls:
    def __init__(
        self,
        desk: Desk,
        new_call: Callable[[FrameQueue, Envelope], RelayCall],
        queue: FrameQueue,
        envelope: Envelope,
        chats: Sequence[ChatRequest],
    ) -> None:
        self._desk = desk
        self._envelope = envelope
        self._chats = chats
        self._num_answers = chats[0].sampling.n
        self._new_call = new_call
        self._seats = ExitStack()
        self._calls = [new_call(queue, envelope)]
        self._turn = asyncio.Semaphore(MAX_UNDER_WAY)
        self._joined: asyncio.Queue[Data | Exception | None] = asyncio.Queue(_MAX_FRAMES)
        self._begun: list[asyncio.Future[Prologue]] = []
        self._ends: dict[int, End] = {}
        self._num_tokens = [0] * len(chats)
        """Heard of each."""
        self._num_pieces = [0] * len(chats)
        """Where no token ids are named: about a token each."""
        self._tasks: list[asyncio.Task[None]] = []
        self.prologue: Prologue | None = None

    @property
    def over(self) -> bool:
        return all(call.over for call in self._calls)

    @property
    def beginning(self) -> Prologue | None:
        beginnings = map(self._beginning, range(len(self._begun)))
        return next((one for one in beginnings if one), None)

    async def hand_on(self, chat: ChatRequest, max_bytes: int) -> str:
        """Takes a seat for each, hands the first on, then the others as their turn comes."""
        del chat  # the first of ours
        for request_id in request_ids_of(self._envelope.request_id, len(self._chats))[1:]:
            envelope = self._envelope.model_copy(update={"request_id": request_id})
            queue = self._seats.enter_context(self._desk.seat(request_id))
            self._calls.append(self._new_call(queue, envelope))
        loop = asyncio.get_running_loop()
        self._begun = [loop.create_future() for _ in self._calls]
        await self._turn.acquire()
        instance = await self._calls[0].hand_on(self._chats[0], max_bytes)
        self._start(0, partial(self._listen, 0))
        for place in range(1, len(self._calls)):
            self._start(place, partial(self._run, place, max_bytes))
        return instance

    def _start(self, place: int, run: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(asyncio.create_task(self._guarded(place, run)))

    async def _guarded(self, place: int, run: Callable[[], Awaitable[None]]) -> None:
        try:
            await run()
        except (RequestFailed, Interrupted) as error:
            if not self._begun[place].done():
                self._begun[place].set_exception(error)
            await self._joined.put(error)

    async def _run(self, place: int, max_bytes: int) -> None:
        await self._turn.acquire()
        await self._calls[place].hand_on(self._chats[place], max_bytes)
        await self._listen(place)

    async def _listen(self, place: int) -> None:
        call = self._calls[place]
        self._begun[place].set_result(await call.begin())
        first, ended = place * self._num_answers, set[int]()
        while isinstance(frame := await call.next(), Data):
            if frame.finish_reason is not None:
                ended.add(frame.index)
            self._num_tokens[place] += len(frame.token_ids)
            self._num_pieces[place] += frame.says_something
            await self._joined.put(frame.model_copy(update={"index": first + frame.index}))
        self._turn.release()
        self._ends[place] = frame
        if len(self._ends) == len(self._calls):
            await self._joined.put(None)
            return
        for index, reason in enumerate(self._reasons(frame)):
            if index not in ended:
                await self._joined.put(_ends_here(frame, first + index, reason))

    async def begin(self) -> Prologue:
        """When all that are under way have begun: until then an error is an HTTP status. Raises RequestFailed
        or Interrupted."""
        first, *_ = await asyncio.gather(*self._begun[:MAX_UNDER_WAY])
        beginnings = [self._beginning(place) for place in range(len(self._begun))]
        are_all_alike = all(one is not None and one.cache == first.cache for one in beginnings)
        computed = next((one for one in beginnings if one and not one.costs_nothing), first)
        changes = {
            "num_answers": self._num_answers * len(self._calls),
            "replica": computed.replica,
            "cache": first.cache if are_all_alike else "none",
            "cache_similarity": first.cache_similarity if are_all_alike else None,
            "prompt_tokens": None,  # of one prompt
        }
        self.prologue = first.model_copy(update=changes)
        return self.prologue

    async def next(self) -> Data | End:
        """Raises RequestFailed or Interrupted."""
        taken = await self._joined.get()
        if isinstance(taken, Exception):
            raise taken
        return self._end() if taken is None else taken

    async def cancel(self, reason: CancelReason) -> CancelOutcome:
        self._stop_listening()
        under_way = [call for call in self._calls if not call.over and call.was_handed_on]
        outcomes = await asyncio.gather(*(call.cancel(reason) for call in under_way))
        freed = [outcome.blocks_freed for outcome in outcomes if outcome.blocks_freed is not None]
        num_acks = sum(outcome.num_acks for outcome in outcomes)
        return CancelOutcome(num_acks, sum(freed) if freed else None)

    async def last_frame(self, seconds: float) -> End | None:
        """After a cancel: what was used until then; of those that don't say it, what was heard of them."""
        waiting = [place for place in self._asked if place not in self._ends]
        found = await asyncio.gather(*(self._calls[place].last_frame(seconds) for place in waiting))
        self._ends |= {place: end for place, end in zip(waiting, found, strict=True) if end}
        return self._end("cancelled") if self._ends else None

    def charged(self, used: Usage) -> Usage:
        """Each request for itself: one may be from the cache while another is not."""
        if not self._ends:
            return used
        return _sum([self._used(place) for place in self._asked if not self._costs_nothing(place)])

    @property
    def has_ended(self) -> bool:
        return self._ends.keys() >= set(self._asked)

    @property
    def uncounted(self) -> float:
        """By their length: a tokenizer's count is not at hand any more."""
        lengths = [chat.num_characters or 1 for chat in self._chats]
        told = {place for place in self._asked if place in self._ends or (self._ends and self._prompt(place))}
        return sum(lengths[place] for place in self._asked if place not in told) / sum(lengths)

    @property
    def _asked(self) -> list[int]:
        return [place for place, call in enumerate(self._calls) if call.was_handed_on]

    def _used(self, place: int) -> Usage:
        """Without the engine's last word, what was heard, as the gateway books it."""
        if end := self._ends.get(place):
            return end.usage
        heard = self._num_tokens[place] or self._num_pieces[place]
        return Usage(prompt_tokens=self._prompt(place), completion_tokens=heard)

    def _prompt(self, place: int) -> int:
        """Tokens, as its beginning said; 0: it has said nothing of them."""
        prologue = self._beginning(place)
        return prologue.prompt_tokens or 0 if prologue else 0

    def _costs_nothing(self, place: int) -> bool:
        prologue = self._beginning(place)
        return prologue is not None and prologue.costs_nothing

    def _beginning(self, place: int) -> Prologue | None:
        begun = self._begun[place]
        has_begun = begun.done() and not begun.cancelled() and begun.exception() is None
        return begun.result() if has_begun else None

    def close(self) -> None:
        self._stop_listening()
        for call in self._calls:
            call.close()
        self._seats.close()
        for begun in self._begun:
            if begun.done() and not begun.cancelled():
                begun.exception()  # asked for, so that nobody complains that it never was

    def _stop_listening(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _reasons(self, end: End) -> list[FinishReason]:
        """One for each answer to one prompt."""
        given: list[FinishReason] = [*end.reasons[: self._num_answers]]
        return given + given[-1:] * (self._num_answers - len(given))

    def _end(self, reason: FinishReason | None = None) -> End:
        """One end of all, with what all used."""
        ends = [end for _, end in sorted(self._ends.items())]
        reasons = [reason for end in ends for reason in self._reasons(end)]
        if "cancelled" in reasons:
            reason = "cancelled"
        return ends[0].model_copy(
            update={
                "finish_reason": reason or reasons[0],
                "finish_reasons": (reason,) if reason else tuple(reasons),
                "usage": _sum([self._used(place) for place in self._asked]),
                "blocks_freed": sum(end.blocks_freed for end in ends),
                "timings": None,
            }
        )


def _sum(usages: Sequence[Usage]) -> Usage:
    return Usage(
        prompt_tokens=sum(usage.prompt_tokens for usage in usages),
        cached_tokens=sum(usage.cached_tokens for usage in usages),
        completion_tokens=sum(usage.completion_tokens for usage in usages),
        reasoning_tokens=sum(usage.reasoning_tokens for usage in usages),
    )


def _ends_here(end: End, index: int, reason: FinishReason) -> Data:
    return Data(
        request_id=end.request_id,
        attempt=end.attempt,
        sender=end.sender,
        seq=end.seq,
        index=index,
        finish_reason=reason,
    )
