"""E4: a stop that ends inside a token (vllm PR#3672).

Right: the text is cut at the exact character; the rest of that token is dropped.
"""

from __future__ import annotations

import pytest

from baton_engine.text import StreamDecoder
from tests.support.tiny_text import BytePieces


@pytest.mark.parametrize(
    ("pieces", "stop", "text"),
    [
        ([b"The end", b". And more"], ".", "The end"),
        ([b"a S", b"TOPPED b"], "STOP", "a "),
        ([b"xSTOPySTOPz"], "STOP", "x"),
        (["日本".encode(), "語です".encode()], "本語", "日"),
        ([b"x\xf0\x9f", b"\x98\x80y"], "😀", "x"),  # the stop itself over two tokens, then more
        ([b"STOP"], "STOP", ""),
    ],
)
def test_cut_at_the_exact_character(pieces: list[bytes], stop: str, text: str) -> None:
    tokens = BytePieces([*pieces, b"never"])
    decoder = StreamDecoder(tokens, [], [stop])
    pushed = [decoder.push([token_id]) for token_id in tokens.ids]
    assert "".join(chunk.text for chunk in pushed) + decoder.finish().text == text
    assert [chunk.stop for chunk in pushed if chunk.stop] == [stop]


def test_include_stop_shows_the_stop_and_still_drops_the_rest_of_the_token() -> None:
    tokens = BytePieces([b"a S", b"TOPPED b"])
    decoder = StreamDecoder(tokens, [], ["STOP"], include_stop=True)
    assert [decoder.push([0]).text, decoder.push([1]).text, decoder.finish().text] == ["a ", "STOP", ""]
