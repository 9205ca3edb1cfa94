"""Text that must never go out: banned phrases and the system's own secrets.

`DenyRules` are compiled once for the process. A `DenyWindow` runs them over one answer, character by
character, and holds back only what may be the beginning of something banned. Once something is found,
nothing more comes out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from baton_common.phrases import BEGINNING, BOUNDARY, ROOT, PhraseAutomaton, read, symbols_at_end, symbols_of
from baton_output_guardrails.restorer import Piece


@dataclass(frozen=True)
class Secret:
    """A prefix that is harmless alone (documentation shows it) and a secret with `tail_chars` behind it."""

    name: str
    prefix: str
    tail_chars: int
    in_tail: Callable[[str], bool]
    skipped: str = ""
    """Symbols that may stand in the tail without counting."""


def _key_char(symbol: str) -> bool:
    return symbol.isascii() and (symbol.isalnum() or symbol in "-_")


def _base64_char(symbol: str) -> bool:
    return symbol.isascii() and (symbol.isalnum() or symbol in "+/=")


_KEY_BLOCKS = ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")
SECRETS = (
    Secret("baton_api_key", "sk-baton-", 20, _key_char),
    *(
        Secret("private_key", f"-----BEGIN {kind}PRIVATE KEY-----", 24, _base64_char, skipped=" ")
        for kind in _KEY_BLOCKS
    ),
)


@dataclass(frozen=True)
class Phrase:
    text: str
    whole_words: bool = True


class DenyRules:
    """Raises ValueError for a phrase in which nothing could be found."""

    def __init__(self, phrases: Sequence[Phrase] = (), secrets: Sequence[Secret] = SECRETS) -> None:
        self.secrets = tuple(secrets)
        patterns = [symbols_of(secret.prefix, whole_words=False) for secret in secrets]
        patterns += [symbols_of(phrase.text, whole_words=phrase.whole_words) for phrase in phrases]
        self.automaton = PhraseAutomaton(patterns)

    def secret(self, index: int) -> Secret | None:
        """The secret whose prefix pattern `index` is; None for a phrase."""
        return self.secrets[index] if index < len(self.secrets) else None


@dataclass
class _Tail:
    """A secret's prefix was seen at `start`; `missing` more characters make it a secret."""

    secret: Secret
    start: int
    missing: int


class DenyWindow:
    """`push` and `flush` return what may be sent. Positions are those of the whole answer."""

    def __init__(self, rules: DenyRules, *, monitor: bool = False) -> None:
        self._rules = rules
        self._monitor = monitor
        self._reading = BEGINNING
        self._state = ROOT
        self._held = ""
        self._base = 0
        """Position of the first character held back."""
        self._places: deque[int] = deque(maxlen=max(1, rules.automaton.longest))
        """Position of each of the last symbols, at least of those since the automaton was at its root."""
        self._tails: list[_Tail] = []
        self._restored: deque[tuple[int, int]] = deque()
        self.hits: list[str] = []
        """Names of the rules that found something; in monitor mode there may be many."""
        self.blocked = False

    @property
    def held_chars(self) -> int:
        return len(self._held)

    @property
    def num_decided(self) -> int:
        """Characters that have gone out, or never will."""
        return self._base

    @property
    def num_seen(self) -> int:
        return self._base + len(self._held)

    def push(self, piece: Piece) -> str:
        if self.blocked:
            return ""
        position = self._base + len(self._held)
        self._held += piece.text
        if piece.restored:
            self._restored.append((position, position + len(piece.text)))
        text, automaton = piece.text, self._rules.automaton
        index = 0
        while index < len(text):
            if self._state == ROOT and not self._tails:
                index, self._reading = automaton.skip(text, index, self._reading)
                if index == len(text):
                    break
            symbols, self._reading = read(text[index], self._reading)
            for symbol in symbols:
                cut = self._see(symbol, position + index)
                if cut is not None:
                    return self._block(cut)
            index += 1
        return self._release(self._undecided_from(position + len(text)))

    def flush(self) -> str:
        if self.blocked:
            return ""
        end = self._base + len(self._held)
        for symbol in symbols_at_end(self._reading):
            cut = self._see(symbol, end)
            if cut is not None:
                return self._block(cut)
        return self._release(end)

    def _see(self, symbol: str, position: int) -> int | None:
        """One step. Returns the position from which on nothing may be sent, if that is so now."""
        automaton = self._rules.automaton
        self._places.append(position)
        self._state = automaton.step(self._state, symbol)
        if not self._tails and not automaton.found[self._state]:
            return None  # as at nearly every character
        found = [(tail.secret.name, tail.start) for tail in self._follow_tails(symbol)]
        for index in automaton.found[self._state]:
            start = self._places[-automaton.lengths[index]]
            secret = self._rules.secret(index)
            if secret:
                self._tails.append(_Tail(secret, start, secret.tail_chars))
            else:
                found.append(("phrase", start))
        return self._judge(found, position if symbol == BOUNDARY else position + 1) if found else None

    def _judge(self, found: list[tuple[str, int]], end: int) -> int | None:
        guilty = [(name, start) for name, start in found if self._is_foreign(start, end)]
        self.hits.extend(name for name, _ in guilty)
        if not guilty or self._monitor:
            return None
        return min(self._undecided_from(end), *(start for _, start in guilty))

    def _follow_tails(self, symbol: str) -> list[_Tail]:
        """Moves every open tail on; returns those that are complete."""
        if not self._tails or symbol == BOUNDARY:
            return []
        complete: list[_Tail] = []
        still_open: list[_Tail] = []
        for tail in self._tails:
            if tail.secret.in_tail(symbol):
                tail.missing -= 1
            elif symbol not in tail.secret.skipped:
                continue
            (still_open if tail.missing else complete).append(tail)
        self._tails = still_open
        return complete

    def _is_foreign(self, start: int, end: int) -> bool:
        """False for text that lies wholly inside one restored value: it is the user's own."""
        return not any(first <= start and end <= last for first, last in self._restored)

    def _undecided_from(self, end: int) -> int:
        depth = self._rules.automaton.depth[self._state]
        first = self._places[-depth] if depth else end
        return min(first, *(tail.start for tail in self._tails)) if self._tails else first

    def _release(self, upto: int) -> str:
        if self._monitor:
            upto = self._base + len(self._held)
        size = upto - self._base
        clean, self._held = self._held[:size], self._held[size:]
        self._base = upto
        while self._restored and self._restored[0][1] <= upto:
            self._restored.popleft()
        return clean

    def _block(self, cut: int) -> str:
        clean = self._release(cut)
        self._held = ""
        self._tails.clear()
        self.blocked = True
        return clean
