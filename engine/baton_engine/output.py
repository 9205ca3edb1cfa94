"""One answer being written: its tokens, its text and the parts of it, whether it has ended.

Knows no other request.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from baton_engine.deltas import FinishReason, RequestFailure
from baton_engine.request import Request
from baton_engine.text.answer_reader import AnswerPart, AnswerReader
from baton_engine.text_face import TextDecoder, TextDecoderFactory


@dataclass(frozen=True)
class Ending:
    reason: FinishReason
    stop_reason: int | str | None = None
    failure: RequestFailure | None = None


class AnswerWriter:
    """Appends tokens to the request and turns them into text.

    An end or stop token ends the answer without adding its text. Resumed tokens run through the decoder in
    silence: another engine has sent their text, and since what is held back depends on the tokens alone, the
    answer goes on at the very character.
    """

    def __init__(self, request: Request, new_decoder: TextDecoderFactory) -> None:
        self.request = request
        self._decoder: TextDecoder = new_decoder(request.prompt_token_ids, request.sampling)
        self._reader: AnswerReader | None = None
        if not request.output_format.is_plain:
            seed = f"{request.request_id}/{request.seed}/{request.index}"
            self._reader = AnswerReader(request.output_format, seed)
        self._resumed_ending: Ending | None = None
        for index, token_id in enumerate(request.resume_token_ids, start=1):
            _, self._resumed_ending = self._read(token_id, index)
            if self._resumed_ending is not None:
                self.flush()  # sent by whoever sent the last token
                break

    def ending_of_resumed(self) -> Ending | None:
        """Set if the resumed tokens already complete the answer: then there is nothing to run, nor to say."""
        return self._resumed_ending

    def push(self, token_id: int) -> tuple[AnswerPart, Ending | None]:
        """Adds a new token: what may be sent now, and how the answer ended if it did."""
        self.request.token_ids.append(token_id)
        return self._read(token_id, self.request.num_answer_tokens)

    def flush(self) -> AnswerPart:
        """What was held back; the answer has ended, so it can't become more."""
        text = self._decoder.finish().text
        if self._reader is None:
            return AnswerPart(text)
        return self._reader.push(text).then(self._reader.finish())

    def concluded(self, ending: Ending) -> Ending:
        """An answer that came to its own end to have its calls run says so."""
        if ending.reason == "stop" and self._reader is not None and self._reader.num_calls:
            return replace(ending, reason="tool_calls")
        return ending

    def _read(self, token_id: int, num_answer_tokens: int) -> tuple[AnswerPart, Ending | None]:
        was_thinking = self._reader is not None and self._reader.is_thinking
        part, ending = self._advance(token_id, num_answer_tokens)
        if was_thinking or (self._reader is not None and self._reader.is_thinking):
            self.request.num_reasoning_tokens += 1
        return part, ending

    def _advance(self, token_id: int, num_answer_tokens: int) -> tuple[AnswerPart, Ending | None]:
        text, ending = self._decode(token_id, num_answer_tokens)
        if self._reader is None:
            return AnswerPart(text), ending
        part = self._reader.push(text)
        if ending is None and self._reader.is_over:
            ending = Ending("stop")
        return part, ending

    def _decode(self, token_id: int, num_answer_tokens: int) -> tuple[str, Ending | None]:
        request = self.request
        if num_answer_tokens > request.sampling.min_tokens:
            if token_id in request.end_token_ids:
                return "", Ending("stop")
            if token_id in request.stop_token_ids:
                return "", Ending("stop", token_id)
        chunk = self._decoder.push((token_id,))
        if chunk.stopped:
            return chunk.text, Ending("stop", chunk.stop)
        if self._structure_is_complete(num_answer_tokens):
            return chunk.text, Ending("stop")
        if num_answer_tokens >= request.max_tokens:
            return chunk.text, Ending("length")
        return chunk.text, None

    def _structure_is_complete(self, num_answer_tokens: int) -> bool:
        """Raises StructureBroken. Of resumed tokens only the last is asked about: all of them are known."""
        request = self.request
        if request.matcher is None or num_answer_tokens < request.num_answer_tokens:
            return False
        return request.matcher.up_to_date(request).is_complete
