"""Tells a model's thinking, `<think>…</think>` at the beginning of an answer, from the answer proper.

Owns the two marks and the white space around the block, which belongs to neither side. Variants: the prompt
already opened the block (then the answer begins inside it); the model opens it again all the same; the end
never comes (then all of it is thinking). `<think>` anywhere else is text. Any split gives the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from baton_engine.text.stop_strings import StopMatcher
from baton_engine.text_face import TextTokenizer

OPENING: Final = "<think>"
CLOSING: Final = "</think>"
MARK_TOKENS: Final = 12
"""As many as the opening mark and the line breaks behind it may take at a prompt's end."""

State = Literal["beginning", "thinking", "behind", "answer"]


def opens_thinking(prompt_token_ids: Sequence[int], tokenizer: TextTokenizer) -> bool:
    """Some templates open the block themselves: then the answer begins inside it."""
    tail = tokenizer.decode(prompt_token_ids[-MARK_TOKENS:], skip_special_tokens=False)
    return tail.rstrip().endswith(OPENING)


def has_closed_thinking(prompt_token_ids: Sequence[int], tokenizer: TextTokenizer) -> bool:
    """Some templates write an empty block where there is to be no thinking."""
    tail = tokenizer.decode(prompt_token_ids[-MARK_TOKENS:], skip_special_tokens=False)
    return tail.rstrip().endswith(CLOSING)


@dataclass(frozen=True)
class Split:
    reasoning: str = ""
    content: str = ""


class ReasoningSplitter:
    def __init__(self, *, opened: bool = False) -> None:
        """opened: the prompt ends inside the block."""
        self._opened = opened
        self._state: State = "beginning"
        self._held = ""
        self._matcher = StopMatcher([CLOSING])
        self._began = False
        """Some thinking has been shown; white space before it is dropped."""

    @property
    def is_thinking(self) -> bool:
        return self._state == "thinking" or (self._state == "beginning" and self._opened)

    def push(self, text: str) -> Split:
        match self._state:
            case "beginning":
                return self._begin(text)
            case "thinking":
                return self._think(text)
            case "behind":
                return Split(content=self._answer(text))
            case "answer":
                return Split(content=text)

    def finish(self) -> Split:
        """The text ends here: what was held is what it looks like without more."""
        held, self._held = self._held, ""
        if self._state == "beginning" and not self._opened:
            return Split(content=held)
        if self._state in ("beginning", "thinking"):
            return Split(reasoning=self._shown(held + self._matcher.flush(), at_end=True))
        return Split()

    def _begin(self, text: str) -> Split:
        self._held += text
        solid = self._held.lstrip()
        if len(solid) < len(OPENING) and OPENING.startswith(solid):
            return Split()
        held, self._held = self._held, ""
        if solid.startswith(OPENING):
            self._state = "thinking"
            return self._think(solid.removeprefix(OPENING))
        if self._opened:
            self._state = "thinking"
            return self._think(held)
        self._state = "answer"
        return Split(content=held)

    def _think(self, text: str) -> Split:
        pending = self._matcher.held + text
        scan = self._matcher.push(text)
        if scan.stop is None:
            return Split(reasoning=self._shown(scan.text))
        reasoning = self._shown(scan.text, at_end=True)
        self._state = "behind"
        return Split(reasoning, self._answer(pending[len(scan.text) + len(CLOSING) :]))

    def _shown(self, text: str, *, at_end: bool = False) -> str:
        """Without white space at either end: what may be the last of it is held."""
        text = self._held + text
        body = text.rstrip()
        self._held = "" if at_end else text[len(body) :]
        if not self._began:
            body = body.lstrip()
        self._began = self._began or bool(body)
        return body

    def _answer(self, text: str) -> str:
        text = text.lstrip()
        if text:
            self._state = "answer"
        return text
