"""Errors of the runtime.

BatonError
├── BusError
│   ├── NoResponders      nobody listens on the subject
│   ├── BusTimeout        somebody listens, but did not answer in time
│   ├── BusUnavailable    not connected to the bus
│   └── MessageTooLarge   for this bus, whenever it is tried
├── RequestFailed         this request can't go on; carries the ErrorBody for the client
└── StreamBroken          frames are missing and can't be had again, or their sender is gone
"""

from __future__ import annotations

from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.subjects import Service


class BatonError(Exception):
    """Root of the runtime's errors."""


class BusError(BatonError):
    """The bus could not carry a message."""

    def __init__(self, subject: str, reason: str) -> None:
        super().__init__(f"{subject}: {reason}")
        self.subject = subject


class NoResponders(BusError):
    def __init__(self, subject: str) -> None:
        super().__init__(subject, "no responders")


class BusTimeout(BusError):
    def __init__(self, subject: str, seconds: float) -> None:
        super().__init__(subject, f"no answer within {seconds:.3f} s")
        self.seconds = seconds


class BusUnavailable(BusError):
    def __init__(self, subject: str) -> None:
        super().__init__(subject, "not connected to the bus")


class MessageTooLarge(BusError):
    def __init__(self, subject: str) -> None:
        super().__init__(subject, "the message is larger than the bus takes")


class RequestFailed(BatonError):
    """Raise it from a handler: the client gets `error`, the process goes on."""

    def __init__(self, error: ErrorBody) -> None:
        super().__init__(f"{error.code}: {error.message}")
        self.error = error

    @classmethod
    def because(
        cls, code: ErrorCode, message: str, *, stop: Service | None = None, param: str | None = None
    ) -> RequestFailed:
        return cls(ErrorBody(code=code, message=message, stop=stop, param=param))


class StreamBroken(BatonError):
    """`sender` numbered the frames; `lost` tells a vanished sender from a gap it can't fill."""

    def __init__(self, sender: str, *, lost: bool) -> None:
        super().__init__(f"frames of {sender}: {'sender is gone' if lost else 'gap can not be repaired'}")
        self.sender = sender
        self.lost = lost
