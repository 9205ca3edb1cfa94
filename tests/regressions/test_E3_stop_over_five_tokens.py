"""E3: a stop string over five tokens, then a near miss (vllm#3574, vllm#2577).

Right: on a match not one character of it is sent; on a near miss all text arrives, each part as soon as
it can no longer be a stop.
"""

from __future__ import annotations

from baton_engine.text import StreamDecoder
from tests.support.tiny_text import BytePieces

STOP = "<END>"


def chunks(pieces: list[bytes], stop: list[str]) -> tuple[list[str], bool]:
    tokens = BytePieces(pieces)
    decoder = StreamDecoder(tokens, [], stop)
    pushed = [decoder.push([token_id]) for token_id in tokens.ids]
    return [chunk.text for chunk in pushed], pushed[-1].stopped


def test_a_match_sends_not_one_character_of_it() -> None:
    assert chunks([b"a ", b"<", b"E", b"N", b"D", b">"], [STOP]) == (["a ", "", "", "", "", ""], True)


def test_a_near_miss_sends_everything_with_the_token_that_decides() -> None:
    assert chunks([b"a ", b"<", b"E", b"N", b"D", b"!", b" b"], [STOP]) == (
        ["a ", "", "", "", "", "<END!", " b"],
        False,
    )


def test_a_near_miss_that_begins_the_stop_again_keeps_only_the_new_beginning() -> None:
    shown, stopped = chunks([b"<", b"E", b"<", b"E", b"N", b"D", b">"], [STOP])
    assert (shown, stopped) == (["", "", "<E", "", "", "", ""], True)


def test_no_more_is_held_than_the_beginning_of_a_stop() -> None:
    """A fixed window of len(stop) - 1 characters would hold back text that can't be a stop."""
    assert chunks([b"abcdefgh", b"i<", b"jk"], [STOP]) == (["abcdefgh", "i", "<jk"], False)


def test_two_stops_that_begin_alike() -> None:
    shown, stopped = chunks([b"\n", b"\nU", b"ser", b":"], ["\n\nUser:", "\n\nBot:"])
    assert (shown, stopped) == (["", "", "", ""], True)
    shown, stopped = chunks([b"\n", b"\nB", b"ye"], ["\n\nUser:", "\n\nBot:"])
    assert (shown, stopped) == (["", "", "\n\nBye"], False)
