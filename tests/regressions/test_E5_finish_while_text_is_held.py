"""E5: the answer finishes while text is held back (vllm PR#8468).

Right: the held text is flushed before the finish reason.
"""

from __future__ import annotations

from baton_engine.text import StreamDecoder
from tests.support.tiny_text import BytePieces


def test_the_beginning_of_a_stop_is_flushed() -> None:
    decoder = StreamDecoder(BytePieces([b"all of it <E", b"ND"]), [], ["<END>"])
    assert [decoder.push([0]).text, decoder.push([1]).text] == ["all of it ", ""]
    last = decoder.finish()
    assert (last.text, last.stopped, last.stop) == ("<END", False, None)


def test_half_a_character_is_flushed_behind_the_beginning_of_a_stop() -> None:
    decoder = StreamDecoder(BytePieces([b"<E\xf0\x9f"]), [], ["<END>"])
    assert decoder.push([0]).text == ""
    assert decoder.finish().text == "<E\ufffd"


def test_what_is_flushed_is_flushed_once() -> None:
    decoder = StreamDecoder(BytePieces([b"<E"]), [], ["<END>"])
    decoder.push([0])
    assert [decoder.finish().text, decoder.finish().text] == ["<E", ""]


def test_a_stop_that_the_end_of_the_text_completes() -> None:
    """The last character is decided only at the end: even then a stop is not shown."""
    decoder = StreamDecoder(BytePieces([b"a\xf0"]), [], ["\ufffd"])
    assert decoder.push([0]).text == "a"
    last = decoder.finish()
    assert (last.text, last.stopped, last.stop) == ("", True, "\ufffd")
