"""How far each answer of a request has come, in token ids: behind that a later attempt goes on. Pure.

Gateway and guard hear the same frames, but one may be ahead when a replica is lost. What comes again is
dropped; what is missing, or differs from what went out, is an error, since text can't be taken back.
"""

from __future__ import annotations

from baton_contracts.frames import Data, Prologue


class DoesNotFit(Exception):
    """An attempt does not continue what was sent. The message says how."""


class Progress:
    def __init__(self) -> None:
        self._seen: dict[int, list[int]] = {}
        """All ids that came, by index of the answer."""
        self._place: dict[int, int] = {}
        """Of the next token, while this attempt repeats some of them."""

    def begin(self, prologue: Prologue) -> None:
        """An attempt begins. Raises DoesNotFit."""
        for index, num_resumed in enumerate(prologue.resumed):
            num_seen = len(self._seen.get(index, ()))
            if num_resumed > num_seen:
                raise DoesNotFit(f"{num_resumed - num_seen} tokens of it did not come here")
        resumed = dict(enumerate(prologue.resumed))
        places = {index: resumed.get(index, 0) for index in self._seen}
        self._place = {index: place for index, place in places.items() if place < len(self._seen[index])}

    def is_new(self, frame: Data) -> bool:
        """False: this came before. Raises DoesNotFit."""
        if frame.index in self._place:
            return self._is_new_behind(frame, self._place[frame.index])
        if frame.token_ids:
            self._seen.setdefault(frame.index, []).extend(frame.token_ids)
        return True

    def _is_new_behind(self, frame: Data, place: int) -> bool:
        seen, end = self._seen[frame.index], place + len(frame.token_ids)
        if tuple(seen[place:end]) != frame.token_ids:
            raise DoesNotFit("it goes on in other words, or inside what was sent")
        if end == len(seen):
            del self._place[frame.index]
        else:
            self._place[frame.index] = end
        return False
