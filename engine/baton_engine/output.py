"""One answer being written: its tokens, its text so far, whether it has ended. Knows no other request."""

from __future__ import annotations

from dataclasses import dataclass

from baton_engine.request import FinishReason, Request, RequestFailure
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
        self._resumed_ending: Ending | None = None
        for index, token_id in enumerate(request.resume_token_ids, start=1):
            _, self._resumed_ending = self._advance(token_id, index)
            if self._resumed_ending is not None:
                break

    def ending_of_resumed(self) -> Ending | None:
        """Set if the resumed tokens already complete the answer: then there is nothing to run."""
        return self._resumed_ending

    def push(self, token_id: int) -> tuple[str, Ending | None]:
        """Adds a new token: the text that may be sent now, and how the answer ended if it did."""
        self.request.token_ids.append(token_id)
        return self._advance(token_id, self.request.num_answer_tokens)

    def flush(self) -> str:
        """What was held back; the answer has ended, so it can't become more."""
        return self._decoder.finish().text

    def _advance(self, token_id: int, num_answer_tokens: int) -> tuple[str, Ending | None]:
        request = self.request
        if num_answer_tokens > request.sampling.min_tokens:
            if token_id in request.end_token_ids:
                return "", Ending("stop")
            if token_id in request.stop_token_ids:
                return "", Ending("stop", token_id)
        chunk = self._decoder.push((token_id,))
        if chunk.stopped:
            return chunk.text, Ending("stop", chunk.stop)
        if num_answer_tokens >= request.max_tokens:
            return chunk.text, Ending("length")
        return chunk.text, None
