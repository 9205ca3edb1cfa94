"""What was said long ago, in few frames: for one who comes late, and whose guard takes so many at once. Pure.

A frame may hold what several steps added: thinking, then text, then calls, as a cache hit tells them. So the
number of frames is bounded, however long the answer is; what a frame says is not cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from baton_contracts.frames import Data, ToolCallPiece

MOST_FRAMES = 512
"""Well within what a receiver's queue holds, and a sender's ring."""


def in_few(frames: Sequence[Data]) -> Sequence[Data]:
    """The same answers in about MOST_FRAMES frames, or in so few as there are. Pieces of the prompt, which
    come before all text, stay alone."""
    if len(frames) <= MOST_FRAMES:
        return frames
    return list(_joined_by_index(frames, -(-len(frames) // MOST_FRAMES)))


def piece_size(num_characters: int, least: int) -> int:
    """For a text that is told in pieces of `least` characters, unless that makes too many of them."""
    return max(least, -(-num_characters // MOST_FRAMES))


def _joined_by_index(frames: Iterable[Data], num_together: int) -> Iterator[Data]:
    gathered: dict[int, list[Data]] = {}
    for frame in frames:
        if frame.prompt:
            yield frame
            continue
        of_answer = gathered.setdefault(frame.index, [])
        of_answer.append(frame)
        if len(of_answer) == num_together:
            yield _joined(gathered.pop(frame.index))
    yield from map(_joined, gathered.values())


def _joined(frames: list[Data]) -> Data:
    if len(frames) == 1:
        return frames[0]
    calls: dict[int, ToolCallPiece] = {}
    for frame in frames:
        for piece in frame.tool_calls or ():
            begun = calls.get(piece.index)
            calls[piece.index] = begun.then(piece) if begun else piece
    return frames[0].model_copy(
        update={
            "text": "".join(frame.text for frame in frames),
            "reasoning": "".join(frame.reasoning or "" for frame in frames) or None,
            "token_ids": tuple(token for frame in frames for token in frame.token_ids),
            "tool_calls": tuple(calls.values()) or None,
            "logprobs": tuple(token for frame in frames for token in frame.logprobs or ()) or None,
            "tokens": tuple(token for frame in frames for token in frame.tokens or ()) or None,
            "finish_reason": next((frame.finish_reason for frame in frames if frame.finish_reason), None),
        }
    )
