"""What a tool-call parser makes of an answer's text. Knows no format."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ContentText:
    """Text that is no call: ordinary answer, and whatever only looked like a call."""

    text: str


@dataclass(frozen=True)
class CallStart:
    """A call is certain: its function is known and its arguments begin. It is never taken back."""

    index: int
    call_id: str
    name: str


@dataclass(frozen=True)
class CallArguments:
    """The next piece of the call's arguments, a JSON object when joined and the call came to its end."""

    index: int
    text: str


@dataclass(frozen=True)
class CallEnd:
    """The arguments are whole. A call without this was cut: by the token limit, or by malformed text."""

    index: int


CallEvent = ContentText | CallStart | CallArguments | CallEnd
