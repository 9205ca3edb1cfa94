"""The clients: each asks one thing, by its own dice, and hears it out, or leaves. One that is not let in,
since nobody is there who could answer, tries again with another id, for a while."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import httpx

from tests.system.client import Heard, Leave, ask, question
from tests.system.live_system import LiveSystem

DOOR_SECONDS = 60.0
"""How long a client tries to reach an edge at all."""
SILENCE_SECONDS = 60.0
"""The edge sends keep-alives every 15 s: a client that hears nothing for this long hangs."""
TOO_LONG_SECONDS = 330.0
"""The edge gives an answer 300 s in all."""


@dataclass(frozen=True)
class Asked:
    request_id: str
    heard: Heard

    @property
    def was_let_in(self) -> bool:
        return self.heard.broke != "ConnectError" and self.heard.status not in (429, 503)

    @property
    def hung(self) -> bool:
        return self.heard.broke.endswith("Timeout") or self.heard.seconds > TOO_LONG_SECONDS

    @property
    def ended_well(self) -> bool:
        """As its client may expect it in a system that is being shot at: whole, or an error that says what
        happened, or the connection closed by an edge that died."""
        heard = self.heard
        return heard.complete or heard.left or heard.typed_error or (bool(heard.broke) and not self.hung)


def all_of_them(system: LiveSystem, key: str, *, num_requests: int, at_once: int, seed: int) -> list[Asked]:
    with ThreadPoolExecutor(at_once) as pool:
        asked = [pool.submit(_one, system, key, number, seed) for number in range(num_requests)]
        return [one for future in asked for one in future.result()]


def _one(system: LiveSystem, key: str, number: int, seed: int) -> list[Asked]:
    """The last one was let in, unless time ran out."""
    dice = random.Random(f"{seed}/{number}")  # noqa: S311  # no secret
    give_up_at = time.monotonic() + DOOR_SECONDS
    asked: list[Asked] = []
    while True:
        request_id = f"{dice.getrandbits(128):032x}"
        asked.append(Asked(request_id, _ask(system, key, number, request_id, dice)))
        if asked[-1].was_let_in or time.monotonic() > give_up_at:
            return asked
        time.sleep(0.5)


def _ask(system: LiveSystem, key: str, number: int, request_id: str, dice: random.Random) -> Heard:
    """A quarter leave at their first sight of something, a quarter in the middle."""
    leaves_after = dice.choice((-1, dice.randrange(1, 80), 10**6, 10**6))

    def on_head(heard: Heard) -> None:
        if leaves_after < 0:
            raise Leave

    def on_text(heard: Heard) -> None:
        if len(heard.text) >= leaves_after:
            raise Leave

    body = question(
        f"Number {number}: tell me something.",
        max_tokens=dice.randrange(4, 64),
        ignore_eos=True,
        stream=dice.random() < 0.8,
        temperature=dice.choice((0, 0.8)),
        n=dice.choice((1, 1, 1, 2)),
    )
    headers = {"authorization": f"Bearer {key}", "x-request-id": request_id, "cache-control": "no-cache"}
    try:
        return ask(system, body, on_head=on_head, on_text=on_text, seconds=SILENCE_SECONDS, **headers)
    except (httpx.HTTPError, ValueError, KeyError) as error:
        return Heard(broke=f"unreadable: {error!r}", error=None)
