"""Handing the baton on: ask the next stop's group, and know at once whether it holds it.

Nobody there → 503 at once, naming the stop. Mailbox full → another member is tried, a little later.
Nothing is handed on after its deadline.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable

from baton_common.bus import Bus
from baton_common.clock import Clock
from baton_common.errors import BusError, BusTimeout, BusUnavailable, NoResponders, RequestFailed
from baton_contracts.base import MalformedMessage
from baton_contracts.errors import ErrorBody
from baton_contracts.handoffs import Ack
from baton_contracts.subjects import Service

log = logging.getLogger(__name__)

ACK_SECONDS = 2.0
"""A stop that listens but does not acknowledge within this is taken for stuck."""
BUSY_PATIENCE_SECONDS = 1.0


async def hand_on(
    bus: Bus,
    clock: Clock,
    subject: str,
    encode: Callable[[], bytes],
    *,
    to: Service,
    deadline: float,
    ack_seconds: float = ACK_SECONDS,
) -> Ack:
    """`encode` is called for each try, so that `sent_at` is true. Raises RequestFailed."""
    patience = clock.wall() + BUSY_PATIENCE_SECONDS
    while True:
        left = deadline - clock.wall()
        if left <= 0:
            raise RequestFailed.because(
                "deadline_exceeded", f"The deadline passed before {to} was reached.", stop=to
            )
        ack = await _ask(bus, subject, encode(), to=to, seconds=min(ack_seconds, left))
        if ack.verdict == "held":
            return ack
        if ack.verdict == "refused":
            raise RequestFailed(ack.error or ErrorBody(code="stop_failed", message=f"{to} refused.", stop=to))
        if clock.wall() >= patience:
            error = ErrorBody(
                code="stop_busy",
                message=f"Every instance of {to} has a full mailbox. Try again shortly.",
                stop=to,
                retry_after_seconds=1,
            )
            raise RequestFailed(error)
        await asyncio.sleep(random.uniform(0.005, 0.05))  # noqa: S311  # jitter, not a secret


async def _ask(bus: Bus, subject: str, payload: bytes, *, to: Service, seconds: float) -> Ack:
    try:
        return Ack.decode(await bus.request(subject, payload, timeout=seconds))
    except NoResponders:
        message = f"No instance of {to} is running. Start it, or try again when it is back."
        raise RequestFailed(
            ErrorBody(code="no_responder", message=message, stop=to, retry_after_seconds=1)
        ) from None
    except BusTimeout:
        message = f"{to} is there but did not take the request within {seconds:.1f} s."
        raise RequestFailed(
            ErrorBody(code="stop_unresponsive", message=message, stop=to, retry_after_seconds=1)
        ) from None
    except BusUnavailable:
        message = f"The bus is away, so {to} can't be reached. Try again shortly."
        raise RequestFailed(
            ErrorBody(code="bus_unavailable", message=message, stop=to, retry_after_seconds=1)
        ) from None
    except (BusError, MalformedMessage) as error:
        log.warning("handoff to %s: %s", to, error)
        raise RequestFailed.because(
            "stop_failed", f"{to} could not be handed the request.", stop=to
        ) from None
