"""The clients: each asks one thing, by its own dice, and hears it out, or leaves. One that is turned away
waits as long as it was told to and tries again with another id, as a client library does."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, cast, get_args

import httpx

from baton_contracts.errors import ErrorCode, http_status
from tests.system.client import Heard, Leave, ask, question
from tests.system.live_system import LiveSystem

DOOR_SECONDS = 120.0
"""How long a client goes on trying. Longer than any process takes to come back."""
UNTOLD_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 10.0
SILENCE_SECONDS = 60.0
"""The edge sends keep-alives every 15 s: a client that hears nothing for this long hangs."""
TOO_LONG_SECONDS = 120.0
"""For so few tokens, however often it is begun anew: keep-alives do not make a stuck stream move."""
ANSWER_TOKENS = (8, 40)
IMPATIENT = 0.1
"""So many wait a third of a second for the next word at most, then leave."""
EMBEDDINGS = 0.1
"""So many want no answer, but two vectors."""
OUR_FAULTS = ("stop_failed", "internal_error")
"""No process that dies makes another one fail in its code."""
STUCK = ("idle_timeout", "deadline_exceeded")
"""The edge gave up a stream that stood still."""
BLAMED = (400, 401, 403, 404, 405, 409, 413, 499)
"""What was asked is right, whoever dies meanwhile, and who is told of it has not left."""
WIRE_CODES = frozenset(get_args(ErrorCode))
UNREADABLE = "unreadable"
EMBEDDING_MODEL = "all-MiniLM-L6-v2"
Wish = Literal["an answer", "an embedding"]


@dataclass(frozen=True)
class Asked:
    """One try of one client."""

    request_id: str
    heard: Heard
    began: float
    """On the monotonic clock."""
    wish: Wish = "an answer"

    @property
    def was_let_in(self) -> bool:
        return self.heard.broke != "ConnectError" and self.heard.status not in (429, 503)

    @property
    def hung(self) -> bool:
        heard = self.heard
        return (
            heard.broke.endswith("Timeout")
            or heard.seconds > TOO_LONG_SECONDS
            or (heard.typed_error and self._code in STUCK)
        )

    @property
    def _code(self) -> str:
        return str((self.heard.error or {}).get("code"))

    @property
    def ended_well(self) -> bool:
        """As its client may expect it in a system that is being shot at: whole, or an error that says what
        happened, or a connection that closed: whether by an edge that died is the verdict's to say. While no
        edge is there, nobody answers at the door; who never gets in is found by its visit."""
        heard = self.heard
        if heard.broke == "ConnectError":
            return True
        if heard.typed_error:
            return self._code in WIRE_CODES and self._code not in OUR_FAULTS and not self._is_blamed
        return heard.complete or heard.left or self.was_cut_off

    @property
    def _is_blamed(self) -> bool:
        """As an HTTP status, or in the middle of a stream that began with 200."""
        return http_status(cast("ErrorCode", self._code)) in BLAMED

    @property
    def was_cut_off(self) -> bool:
        broke = self.heard.broke
        return self.was_let_in and bool(broke) and not self.hung and not broke.startswith(UNREADABLE)

    @property
    def end(self) -> str:
        heard = self.heard
        if self.hung:
            return "hung"
        if heard.left:
            return "left"
        if heard.complete:
            return "whole"
        if heard.error:
            return self._code
        return ("no edge" if heard.broke == "ConnectError" else "cut off") if heard.broke else "other"

    def was_under_way(self, moment: float) -> bool:
        return self.began <= moment <= self.began + self.heard.seconds


@dataclass(frozen=True)
class Visit:
    """All tries of one client; the last one was let in, unless it gave up."""

    tries: tuple[Asked, ...]

    @property
    def was_let_in(self) -> bool:
        return self.tries[-1].was_let_in

    @property
    def was_let_in_at_once(self) -> bool:
        return self.tries[0].was_let_in


class Clients:
    def __init__(self, system: LiveSystem, key: str, seed: int) -> None:
        self._system = system
        self._key = key
        self._seed = seed
        self._given = threading.Lock()
        self._number = 0

    def all_of_them(self, *, num_requests: int, at_once: int, more: Callable[[], bool]) -> list[Visit]:
        """At least `num_requests`, and on for as long as there is `more` to see."""
        with ThreadPoolExecutor(at_once) as pool:
            lines = [pool.submit(self._one_after_the_other, num_requests, more) for _ in range(at_once)]
            return [visit for line in lines for visit in line.result()]

    def _one_after_the_other(self, num_requests: int, more: Callable[[], bool]) -> list[Visit]:
        visits: list[Visit] = []
        while True:
            with self._given:
                number, self._number = self._number, self._number + 1
            if number >= num_requests and not more():
                return visits
            visits.append(self._one(number))

    def _one(self, number: int) -> Visit:
        dice = random.Random(f"{self._seed}/{number}")  # noqa: S311  # no secret
        give_up_at = time.monotonic() + DOOR_SECONDS
        tries: list[Asked] = []
        while True:
            request_id = f"{dice.getrandbits(128):032x}"
            began = time.monotonic()
            wish: Wish = "an embedding" if dice.random() < EMBEDDINGS else "an answer"
            tries.append(Asked(request_id, self._ask(number, request_id, wish, dice), began, wish))
            if tries[-1].was_let_in or time.monotonic() > give_up_at:
                return Visit(tuple(tries))
            time.sleep(_told_to_wait(tries[-1].heard))  # as `Retry-After` says: this is what is tried

    def _ask(self, number: int, request_id: str, wish: Wish, dice: random.Random) -> Heard:
        headers = {
            "authorization": f"Bearer {self._key}", "x-request-id": request_id, "cache-control": "no-cache"
        }  # fmt: skip
        try:
            if wish == "an embedding":
                return _ask_embedding(self._system, number, headers)
            return self._ask_answer(number, dice, headers)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            return Heard(broke=f"{UNREADABLE}: {error!r}")

    def _ask_answer(self, number: int, dice: random.Random, headers: Mapping[str, str]) -> Heard:
        """A quarter leave at their first sight of something, a quarter in the middle, and of the others some
        before anything came."""
        leaves_after = dice.choice((-1, dice.randrange(1, 80), 10**6, 10**6))
        patience = dice.uniform(0.02, 0.3) if dice.random() < IMPATIENT else SILENCE_SECONDS

        def on_head(heard: Heard) -> None:
            if leaves_after < 0 and heard.status == 200:
                raise Leave

        def on_text(heard: Heard) -> None:
            if len(heard.text) >= leaves_after:
                raise Leave

        body = question(
            f"Number {number}: tell me something.",
            max_tokens=dice.randrange(*ANSWER_TOKENS),
            ignore_eos=True,
            stream=dice.random() < 0.8,
            temperature=dice.choice((0, 0.8)),
            n=dice.choice((1, 1, 1, 2)),
            retrieval=dice.choice(("off", "auto")),
        )
        heard = ask(self._system, body, on_head=on_head, on_text=on_text, seconds=patience, **headers)
        if heard.broke == "ReadTimeout" and patience < SILENCE_SECONDS:
            heard.broke, heard.left = "", True
        return heard


def _ask_embedding(system: LiveSystem, number: int, headers: Mapping[str, str]) -> Heard:
    """Heard out: it takes a moment only."""
    heard, began = Heard(), time.monotonic()
    body = {"model": EMBEDDING_MODEL, "input": [f"Number {number}.", "Tell me something."]}
    try:
        answer = httpx.post(
            f"{system.url}/v1/embeddings", json=body, headers=headers, timeout=SILENCE_SECONDS,
            trust_env=False,
        )  # fmt: skip
        told = answer.json()
        heard.status, heard.headers = answer.status_code, answer.headers
        heard.error, heard.usage = told.get("error"), told.get("usage")
        heard.done = [len(one["embedding"]) for one in told.get("data", ())] == [384, 384]
    except httpx.TransportError as error:
        heard.broke = type(error).__name__
    heard.seconds = time.monotonic() - began
    return heard


def _told_to_wait(heard: Heard) -> float:
    told = heard.headers.get("retry-after", "")
    return min(float(told), LONGEST_WAIT_SECONDS) if told.isdigit() else UNTOLD_SECONDS
