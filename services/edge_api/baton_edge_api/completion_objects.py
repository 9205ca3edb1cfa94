"""Completions in OpenAI's form: the events of a stream and the whole object. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from baton_contracts.frames import Data, FinishReason, PromptPiece, Usage
from baton_edge_api.answer_objects import SYSTEM_FINGERPRINT, AnswerParts, usage_object
from baton_edge_api.token_objects import CompletionTokens, joined, prompt_logprobs, prompt_token_ids

_KNOWN_REASONS = ("stop", "length", "content_filter")


@dataclass(frozen=True)
class CompletionForm:
    """What of the answers is told. `prompts` are the texts, in order."""

    prompts: tuple[str, ...] = ("",)
    num_answers: int = 1
    """To each prompt; with best_of more are written."""
    num_written: int = 1
    logprobs: int | None = None
    tokens_as_ids: bool = False
    token_ids: bool = False
    prompt_logprobs: bool = False
    echo: bool = False
    only_prompt: bool = False
    """max_tokens 0: the one token that had to be computed is not told."""

    def echo_of(self, place: int) -> str:
        return self.prompts[place // self.num_written] if self.echo else ""

    def tokens(self) -> CompletionTokens:
        return CompletionTokens(num_top=self.logprobs or 0, as_ids=self.tokens_as_ids)


@dataclass
class _Choice:
    """One answer of a stream, as far as it was told."""

    tokens: CompletionTokens
    echo: str
    """Still to be told."""
    prompt: list[PromptPiece] = field(default_factory=list[PromptPiece])
    """Still to be told."""


class CompletionChunks:
    """Events of one stream. What is told of a prompt goes with the first event of each of its answers."""

    def __init__(
        self, request_id: str, model: str, created: int, form: CompletionForm, *, include_usage: bool
    ) -> None:
        self._form = form
        self._head = _head(request_id, model, created)[:-1] + b',"choices":['
        self._tail = b'],"usage":null}\n\n' if include_usage else b"]}\n\n"
        self._choices: dict[int, _Choice] = {}
        self._ended: set[int] = set()
        self._prompts: dict[int, list[PromptPiece]] = {}
        """By prompt: its tokens come with its first answer only."""

    def data(self, frame: Data) -> bytes:
        """What one frame added to its answer, and its end if others go on; nothing if all is held back."""
        if frame.prompt:
            self._prompts.setdefault(frame.index // self._form.num_written, []).append(frame.prompt)
        says_something = frame.text or frame.logprobs or frame.tokens
        event = self._event(frame.index, frame, None) if says_something else b""
        return (
            event if frame.finish_reason is None else event + self._finish(frame.index, frame.finish_reason)
        )

    def finish(self, reasons: Sequence[FinishReason]) -> bytes:
        """The last event of each answer that has not ended before."""
        rest = [place for place in range(len(reasons)) if place not in self._ended]
        return b"".join(self._finish(place, reasons[place]) for place in rest)

    def _finish(self, place: int, reason: FinishReason) -> bytes:
        self._ended.add(place)
        return self._event(place, None, reason)

    def usage(self, usage: Usage) -> bytes:
        return self._head + b'],"usage":' + orjson.dumps(usage_object(usage)) + b"}\n\n"

    def _event(self, place: int, frame: Data | None, reason: FinishReason | None) -> bytes:
        form = self._form
        choice = self._choices.get(place)
        if choice is None:
            choice = self._choices[place] = self._begin(place)
        told = frame if frame and not form.only_prompt else None
        echo, choice.echo = choice.echo, ""
        prompt, choice.prompt = choice.prompt, []
        event: dict[str, Any] = {
            "index": place,
            "text": echo + (told.text if told else ""),
            "logprobs": self._logprobs(choice, echo, prompt, told),
            "finish_reason": _known(reason) if reason else None,
        }
        if form.token_ids:
            event["token_ids"] = [token.token_id for token in (told.tokens or ())] if told else []
            if prompt:
                event["prompt_token_ids"] = prompt_token_ids(prompt)
        return self._head + orjson.dumps(event) + self._tail

    def _begin(self, place: int) -> _Choice:
        pieces = self._prompts.get(place // self._form.num_written, [])
        return _Choice(self._form.tokens(), self._form.echo_of(place), [*pieces])

    def _logprobs(
        self, choice: _Choice, echo: str, prompt: list[PromptPiece], frame: Data | None
    ) -> dict[str, Any] | None:
        if self._form.logprobs is None:
            return None
        parts: list[dict[str, Any]] = []
        if echo and prompt:
            parts.append(choice.tokens.of_prompt(prompt, echo))
        elif echo:
            choice.tokens.echoed(echo)
        if frame and frame.logprobs:
            parts.append(choice.tokens.of_answer(frame.logprobs))
        return joined(parts) if parts else None


def _head(request_id: str, model: str, created: int) -> bytes:
    head = {
        "id": f"cmpl-{request_id}",
        "object": "text_completion",
        "created": created,
        "model": model,
        "system_fingerprint": SYSTEM_FINGERPRINT,
    }
    return b"data: " + orjson.dumps(head)


def _known(reason: FinishReason) -> str:
    return reason if reason in _KNOWN_REASONS else "stop"


def whole_completion(
    request_id: str,
    model: str,
    created: int,
    answers: Sequence[AnswerParts],
    reasons: Sequence[FinishReason],
    usage: Usage,
    chosen: Sequence[int],
    form: CompletionForm,
) -> bytes:
    """`answers` are all that were written, `chosen` the places of those that are given, in order."""
    choices = [
        _choice(index, place, answers, _known(reasons[place]), form) for index, place in enumerate(chosen)
    ]
    answer = {
        "id": f"cmpl-{request_id}",
        "object": "text_completion",
        "created": created,
        "model": model,
        "system_fingerprint": SYSTEM_FINGERPRINT,
        "choices": choices,
        "usage": usage_object(usage),
    }
    return orjson.dumps(answer)


def _choice(
    index: int, place: int, answers: Sequence[AnswerParts], reason: str, form: CompletionForm
) -> dict[str, Any]:
    prompt = answers[place - place % form.num_written].prompt
    parts = AnswerParts() if form.only_prompt else answers[place]
    echo = form.echo_of(place)
    choice: dict[str, Any] = {
        "index": index,
        "text": echo + parts.text,
        "logprobs": None if form.logprobs is None else _logprobs(prompt, echo, parts, form),
        "finish_reason": reason,
    }
    if form.token_ids:
        choice["token_ids"] = [token.token_id for token in parts.tokens]
        choice["prompt_token_ids"] = prompt_token_ids(prompt)
    if form.prompt_logprobs:
        choice["prompt_logprobs"] = prompt_logprobs(prompt)
    return choice


def _logprobs(
    prompt: Sequence[PromptPiece], echo: str, parts: AnswerParts, form: CompletionForm
) -> dict[str, Any]:
    tokens = form.tokens()
    told = [tokens.of_prompt(prompt, echo)] if form.echo else []
    return joined([*told, tokens.of_answer(parts.logprobs)])
