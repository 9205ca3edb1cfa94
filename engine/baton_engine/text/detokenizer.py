"""Turns token ids into text while they are produced.

Owns what may be shown when: half a character waits for its other half, and text that may begin a stop
string waits until that is decided, not a character longer. Any split of the ids into pushes gives the
same text. Knows nothing of sampling, of finish reasons or of who reads the stream.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from baton_engine.text.stop_strings import StopMatcher

_MAX_UTF8_BYTES: Final = 4


class TokenTexts(Protocol):
    """What the decoder needs to know of a tokenizer."""

    @property
    def special_token_ids(self) -> frozenset[int]: ...

    @property
    def eos_token_ids(self) -> frozenset[int]: ...

    @property
    def strips_first_space(self) -> bool: ...

    def token_bytes(self, token_id: int) -> bytes: ...


@dataclass(frozen=True)
class Chunk:
    """Text that may be shown now.

    `stopped` says that the answer ends here; `stop` names the user's stop string that ended it, or is
    None where an end-of-turn token was spelled out in ordinary tokens. `num_tokens` counts the ids of
    this push that belong to the answer: up to and with the one that completed the stop.
    """

    text: str
    stopped: bool = False
    stop: str | None = None
    num_tokens: int = 0


class StreamDecoder:
    """One answer's way from ids to text. Amortised O(1) a token.

    prompt_token_ids: what the answer continues. If it ends inside a character, the answer begins with
        that whole character; nothing else of the prompt is ever repeated.
    stop: strings that end the answer; neither they nor the rest of their last token are shown, unless
        `include_stop` (then the text ends with the stop string).
    skip_special_tokens: control tokens are not shown. The text of an end token that the model spells out
        in ordinary tokens (`<|im_end|>` in pieces) then ends the answer like the token itself; turn this
        off with `stop_at_spelled_eos=False`, for callers that ignore the end token too.
    min_tokens: for this many tokens nothing stops; a stop must begin after them.
    """

    def __init__(
        self,
        tokenizer: TokenTexts,
        prompt_token_ids: Sequence[int],
        stop: Sequence[str] = (),
        skip_special_tokens: bool = True,
        include_stop: bool = False,
        *,
        min_tokens: int = 0,
        stop_at_spelled_eos: bool = True,
    ) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_token_ids if skip_special_tokens else frozenset[int]()
        self._user_stops = frozenset(stop)
        self._include_stop = include_stop
        spelled = _spelled_eos(tokenizer) if skip_special_tokens and stop_at_spelled_eos else frozenset[str]()
        stops = [*stop, *spelled.difference(stop)]
        self._matcher = StopMatcher(stops) if stops else None
        self._free_tokens = min_tokens
        self._stopped = False
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._prompt_half = self._half_character(prompt_token_ids)
        self._at_text_start = tokenizer.strips_first_space and not self._has_text(prompt_token_ids)

    def push(self, token_ids: Sequence[int]) -> Chunk:
        """Take the next ids; after a stop, further ids are ignored."""
        shown: list[str] = []
        for number, token_id in enumerate(token_ids, start=1):
            if self._stopped:
                break
            ended = self._take(self._text_of(token_id), shown)
            self._free_tokens -= 1
            if ended is not None:
                return self._stop_chunk(shown, ended, number)
        return Chunk("".join(shown), self._stopped, num_tokens=0 if self._stopped else len(token_ids))

    def finish(self) -> Chunk:
        """No more ids will come: everything still held is shown, an unfinished character as U+FFFD."""
        if self._stopped:
            return Chunk("", stopped=True)
        shown: list[str] = []
        rest = "" if self._prompt_half else self._utf8.decode(b"", final=True)
        ended = self._take(rest, shown)
        if ended is not None:
            return self._stop_chunk(shown, ended, 0)
        self._stopped = True
        if self._matcher is not None:
            shown.append(self._matcher.flush())
        return Chunk("".join(shown))

    def _take(self, text: str, shown: list[str]) -> str | None:
        """Move what can be shown of `text` into `shown`; the stop string if one is complete."""
        if self._matcher is None or self._free_tokens > 0:
            shown.append(text)
            return None
        scan = self._matcher.push(text)
        shown.append(scan.text)
        return scan.stop

    def _stop_chunk(self, shown: list[str], ended: str, num_tokens: int) -> Chunk:
        self._stopped = True
        by_user = ended in self._user_stops
        if by_user and self._include_stop:
            shown.append(ended)
        return Chunk("".join(shown), stopped=True, stop=ended if by_user else None, num_tokens=num_tokens)

    def _text_of(self, token_id: int) -> str:
        if token_id in self._skipped:
            return ""
        raw = self._tokenizer.token_bytes(token_id)
        if self._prompt_half and raw:
            raw = self._join_prompt_half(raw)
        text = self._utf8.decode(raw)
        if self._at_text_start and text:
            self._at_text_start = False
            return text.removeprefix(" ")
        return text

    def _join_prompt_half(self, raw: bytes) -> bytes:
        """Put the prompt's half character in front, if the answer goes on with it; else it is dropped."""
        half, self._prompt_half = self._prompt_half, b""
        return half + raw if _begins_character(half + raw[:1]) else raw

    def _half_character(self, prompt_token_ids: Sequence[int]) -> bytes:
        """The unfinished character at the end of the prompt, as bytes; a special token is a clean cut."""
        tail = b""
        for token_id in reversed(prompt_token_ids):
            if token_id in self._tokenizer.special_token_ids or len(tail) >= _MAX_UTF8_BYTES:
                break
            tail = self._tokenizer.token_bytes(token_id) + tail
        for length in range(min(_MAX_UTF8_BYTES - 1, len(tail)), 0, -1):
            half = tail[-length:]
            if _begins_character(half) and not _is_whole(half):
                return half
        return b""

    def _has_text(self, prompt_token_ids: Sequence[int]) -> bool:
        skipped = self._tokenizer.special_token_ids
        return any(token_id not in skipped for token_id in reversed(prompt_token_ids))


def _spelled_eos(tokenizer: TokenTexts) -> frozenset[str]:
    special = tokenizer.eos_token_ids & tokenizer.special_token_ids
    texts = (tokenizer.token_bytes(token_id).decode("utf-8", "replace") for token_id in special)
    return frozenset(text for text in texts if text)


def _begins_character(raw: bytes) -> bool:
    """True if `raw` is one character or more bytes could make it one (Unicode, table 3-7)."""
    lead = raw[0]
    length = 2 if 0xC2 <= lead <= 0xDF else 3 if 0xE0 <= lead <= 0xEF else 4 if 0xF0 <= lead <= 0xF4 else 0
    if len(raw) == 1 or len(raw) > length:
        return 0 < length >= len(raw)
    try:
        (raw + b"\x80" * (length - len(raw))).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_whole(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
