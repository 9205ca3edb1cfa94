"""Server-sent events out of bytes, however they were cut. Pure.

Takes all three line ends, comments, several `data` lines, characters cut in two, and a last event without the
empty line behind it.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_EVENT_BYTES = 4 * 1024 * 1024


class EventTooLarge(Exception):
    """A server sends what never ends. Carries the bound in bytes."""

    def __init__(self) -> None:
        super().__init__(f"an event of over {MAX_EVENT_BYTES} bytes")


@dataclass(frozen=True, slots=True)
class Event:
    data: bytes
    name: str = ""


class EventReader:
    """`feed` bytes as they come, `close` at their end."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._num_bytes = 0
        self._name = ""
        self._began = False

    def feed(self, piece: bytes) -> list[Event]:
        """Events that are complete now. Raises EventTooLarge."""
        text = self._rest + piece if self._rest else piece
        if not self._began:
            if b"\xef\xbb\xbf".startswith(text[:3]) and len(text) < 3:
                self._rest = text
                return []
            self._began = True
            text = text.removeprefix(b"\xef\xbb\xbf")
        half = b""
        if b"\r" in text:
            if text.endswith(b"\r"):  # maybe the first half of a line end
                text, half = text[:-1], b"\r"
            text = text.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines = text.split(b"\n")
        self._rest = lines.pop() + half
        if len(self._rest) + self._num_bytes > MAX_EVENT_BYTES:
            raise EventTooLarge
        events: list[Event] = []
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                events.append(self._finish())
            else:
                self._name = ""
        return events

    def close(self) -> list[Event]:
        """What stood at the end without an empty line behind it."""
        if line := self._rest.rstrip(b"\r"):
            self._take(line)
        self._rest = b""
        return [self._finish()] if self._data else []

    def _take(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            value = line[6:] if line[5:6] == b" " else line[5:]
            self._data.append(value)
            self._num_bytes += len(value) + 1  # an empty one is kept, too
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode(errors="replace")

    def _finish(self) -> Event:
        data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
        event = Event(data, self._name)
        self._data, self._num_bytes, self._name = [], 0, ""
        return event
