"""What a server answers, in the relay's words: chunks of a stream, or one whole object. Pure.

Chunks that were read together become one piece an answer where that loses nothing: text after text, thinking
before text, calls after both. Owns the count of what came, for a bill without the server's own, and how much
may come at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from itertools import islice
from typing import Any, cast

from baton_contracts.frames import FinishReason, RatedToken, TokenLogprob, ToolCallPiece, Usage
from baton_llm_gateway.providers.piece import MOST_OF_NAME, Piece

_REASONS: dict[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "content_filter": "content_filter",
}

Json = dict[str, Any]

MAX_ANSWER_CHARACTERS = 32 * 1024 * 1024
MOST_OF_TOKEN = 512
"""Characters; bytes: no tokenizer has longer ones."""
MOST_ALTERNATIVES = 20
"""As in OpenAI's specification."""
MOST_COUNTED = 2**31 - 1
"""What the books can hold."""


class NoAnswer(Exception):
    """What came is no chat completion; the message says why, without its content."""


class ProviderError(Exception):
    """The server put an error into its stream."""

    def __init__(self, error: Json) -> None:
        super().__init__(str(error.get("message") or "no reason given"))
        self.error = error


class AnswerReader:
    """`take` chunks, then `pieces` for what they added; `num_tokens` counts what came of all answers."""

    def __init__(self, num_answers: int) -> None:
        self._num_answers = num_answers
        self._pieces: list[Piece] = []
        self._last: dict[int, Piece] = {}
        self._calls: dict[int, dict[int, ToolCallPiece]] = {}
        """By answer, as they were begun, by the server's own number."""
        self._reasons: dict[int, FinishReason] = {}
        self._num_characters = 0
        self.num_tokens = 0
        self.usage: Usage | None = None

    @property
    def reasons(self) -> tuple[FinishReason, ...] | None:
        """One for each answer; None while one of them goes on."""
        if len(self._reasons) < self._num_answers:
            return None
        return tuple(self._reasons[index] for index in range(self._num_answers))

    def pieces(self) -> list[Piece]:
        """What was taken since the last call, each to be one frame."""
        pieces, self._pieces, self._last = self._pieces, [], {}
        return pieces

    def take(self, chunk: object) -> None:
        """One chunk of a stream. Raises ProviderError, NoAnswer."""
        chunk = _opened(chunk, "a chunk")
        if usage := _usage(chunk.get("usage")):
            self.usage = usage
        for choice in _objects(chunk.get("choices")):
            self._take_choice(choice, _object(choice.get("delta")), is_whole=False)

    def take_whole(self, answer: object) -> None:
        """The one object of an answer that is not streamed. Raises ProviderError, NoAnswer."""
        answer = _opened(answer, "the answer")
        choices = list(_objects(answer.get("choices")))
        if not choices:
            raise NoAnswer("the answer has no choices")
        self.usage = _usage(answer.get("usage"))
        for choice in choices:
            self._take_choice(choice, _object(choice.get("message")), is_whole=True)

    def _take_choice(self, choice: Json, delta: Json, *, is_whole: bool) -> None:
        index = choice.get("index", 0)
        if not isinstance(index, int) or not 0 <= index < self._num_answers:
            return
        text = _text(delta.get("content")) or _text(delta.get("refusal"))
        reasoning = _text(delta.get("reasoning_content")) or _text(delta.get("reasoning"))
        calls = list(self._call_pieces(index, delta.get("tool_calls"), is_whole=is_whole))
        logprobs = [_rated(entry) for entry in _objects(_object(choice.get("logprobs")).get("content"))]
        reason = choice.get("finish_reason")
        if reason and index not in self._reasons:
            calls += self._closed_calls(index)
            self._reasons[index] = _REASONS.get(str(reason), "stop")
        if text or reasoning or calls or logprobs:
            self._add(index, text, reasoning, calls, logprobs)
            self.num_tokens += len(logprobs) or (1 if text or reasoning or calls else 0)
            self._num_characters += len(text) + len(reasoning) + sum(len(call.arguments) for call in calls)
            if self._num_characters + self.num_tokens > MAX_ANSWER_CHARACTERS:
                raise NoAnswer(f"its answer has over {MAX_ANSWER_CHARACTERS} characters")

    def _add(
        self,
        index: int,
        text: str,
        reasoning: str,
        calls: list[ToolCallPiece],
        logprobs: list[TokenLogprob],
    ) -> None:
        piece = self._last.get(index)
        if piece is None or (reasoning and (piece.texts or piece.calls)) or (text and piece.calls):
            piece = Piece(index)
            self._pieces.append(piece)
            self._last[index] = piece
        if text:
            piece.texts.append(text)
        if reasoning:
            piece.reasoning.append(reasoning)
        for call in calls:
            begun = piece.calls.get(call.index)
            piece.calls[call.index] = begun.then(call) if begun else call
        piece.logprobs += logprobs

    def _call_pieces(self, answer: int, raw: object, *, is_whole: bool) -> Iterator[ToolCallPiece]:
        known = self._calls.setdefault(answer, {})
        for place, call in enumerate(_objects(raw)):
            function = _object(call.get("function"))
            index = call.get("index")
            if not isinstance(index, int):
                index = _place(known, call.get("id"), place)
            arguments = _arguments(function.get("arguments"))
            if index not in known:
                call_id = str(call.get("id") or f"call_{secrets.token_hex(12)}")[:MOST_OF_NAME]
                name = str(function.get("name") or "")[:MOST_OF_NAME]
                yield from self._closed_calls(answer)
                known[index] = piece = ToolCallPiece(
                    index=len(known),
                    call_id=call_id,
                    name=name,
                    arguments=arguments,
                    is_whole=is_whole or None,
                )
                yield piece
            elif arguments:
                yield ToolCallPiece(index=known[index].index, arguments=arguments)

    def _closed_calls(self, answer: int) -> Iterator[ToolCallPiece]:
        """The last call begun is complete once the next one, or the end, comes."""
        known = self._calls.get(answer)
        if not known:
            return
        key, last = next(reversed(known.items()))
        if last.is_whole is None:
            known[key] = last.model_copy(update={"is_whole": True})
            yield ToolCallPiece(index=last.index, is_whole=True)


def _opened(value: object, what: str) -> Json:
    """Raises NoAnswer for what is none, ProviderError for an error in its place."""
    if not isinstance(value, dict):
        raise NoAnswer(f"{what} is no JSON object")
    value = cast(Json, value)
    if error := value.get("error"):
        raise ProviderError(cast(Json, error) if isinstance(error, dict) else {"message": str(error)})
    return value


def _place(known: dict[int, ToolCallPiece], call_id: object, place: int) -> int:
    """For servers that number no calls: an id that is new begins one."""
    if call_id:
        found = next((index for index, begun in known.items() if begun.call_id == call_id), None)
        return len(known) if found is None else found
    return place


def _object(value: object) -> Json:
    return cast(Json, value) if isinstance(value, dict) else {}


def _objects(value: object) -> Iterator[Json]:
    if isinstance(value, list):
        for each in cast(list[object], value):
            if isinstance(each, dict):
                yield cast(Json, each)


def _text(value: object) -> str:
    """Text as it is, or the text of a list of parts."""
    if isinstance(value, str):
        return value
    return "".join(str(part.get("text") or "") for part in _objects(value))


def _arguments(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise NoAnswer("a call's arguments are no text")


def _usage(value: object) -> Usage | None:
    if not isinstance(value, dict):
        return None
    usage = cast(Json, value)
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if not prompt and not completion:
        return None
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=min(prompt, _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))),
        completion_tokens=completion,
        reasoning_tokens=_count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens")),
    )


def _count(value: object) -> int:
    """JSON has no number that is none."""
    return min(max(0, int(value)), MOST_COUNTED) if isinstance(value, int | float) else 0


def _rated(entry: Json) -> TokenLogprob:
    alternatives = islice(_objects(entry.get("top_logprobs")), MOST_ALTERNATIVES)
    top = tuple(_rated_token(one) for one in alternatives)
    token = _rated_token(entry)
    return TokenLogprob(text=token.text, token_bytes=token.token_bytes, logprob=token.logprob, top=top)


def _rated_token(entry: Json) -> RatedToken:
    text, raw, logprob = (
        str(entry.get("token") or "")[:MOST_OF_TOKEN],
        entry.get("bytes"),
        entry.get("logprob"),
    )
    token_bytes = _bytes(cast(list[object], raw)[:MOST_OF_TOKEN]) if isinstance(raw, list) else text.encode()
    number = float(logprob) if isinstance(logprob, int | float) else -9999.0
    return RatedToken(text=text, token_bytes=tuple(token_bytes), logprob=max(number, -9999.0))


def _bytes(numbers: list[object]) -> bytes:
    try:
        return bytes(cast(list[int], numbers))
    except (TypeError, ValueError):
        raise NoAnswer("a token's bytes are none") from None
