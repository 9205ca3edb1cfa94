"""Judges tokens that are told beside the text: by what their bytes spell, in a window of their own. Pure.

An engine may hold text back (a stop string, half a character) whose tokens it tells already, and what a stop
string cuts off is never text at all: so the text's own window does not know enough to let tokens out.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from baton_contracts.frames import RatedToken, SpelledToken
from baton_output_guardrails.stream_filter import StreamFilter


class TokenFilter:
    """`judged` restores nothing: tokens show the placeholders that the engine was given."""

    def __init__(self, judged: StreamFilter) -> None:
        self.filter = judged
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, tokens: Iterable[SpelledToken | RatedToken]) -> None:
        raw = b"".join(bytes(token.token_bytes) for token in tokens)
        self.filter.push(self._utf8.decode(raw))

    def flush(self) -> None:
        """No more of them will come."""
        self.filter.push(self._utf8.decode(b"", final=True))
        self.filter.flush()
