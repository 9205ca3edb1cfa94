"""E1: a prompt given as ids that ends in the middle of a character (vllm#48853).

Right: the stream never repeats prompt text, and starts with a whole character.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_engine.text import StreamDecoder
from tests.support.tiny_text import BytePieces, tiny_tokenizer

SMILE = "😀".encode()


def streamed(prompt: bytes, answer: bytes) -> str:
    tokens = BytePieces([bytes([byte]) for byte in range(256)])
    decoder = StreamDecoder(tokens, list(prompt))
    return "".join(decoder.push([byte]).text for byte in answer) + decoder.finish().text


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_answer_begins_with_the_whole_character(cut: int) -> None:
    assert streamed(b"Hi " + SMILE[:cut], SMILE[cut:] + b" there") == "😀 there"


@pytest.mark.parametrize(
    ("prompt", "answer", "text"),
    [
        (b"Hi " + SMILE[:2], b"ok", "ok"),  # the half is never continued: it was prompt, it is not shown
        (b"Hi " + SMILE[:2], b"", ""),
        (b"Hi " + SMILE[:2], SMILE[2:3] + b"x", "\ufffdx"),  # continued, but never whole
        (b"Hi " + SMILE, b"ok", "ok"),
        (b"Hi " + SMILE[:2] + "é".encode(), b"ok", "ok"),
        (b"Hi \x80", b"\x80", "\ufffd"),  # a stray byte is the beginning of nothing
        (b"\xed", b"\xa0\x80x", "\ufffd\ufffdx"),  # a surrogate is no character, in any encoding
    ],
)
def test_a_half_that_does_not_go_on_is_dropped(prompt: bytes, answer: bytes, text: str) -> None:
    assert streamed(prompt, answer) == text


@given(text=st.text(alphabet="aé日😀", min_size=1, max_size=6), data=st.data())
def test_wherever_the_prompt_ends_the_two_halves_make_the_text(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    cut = data.draw(st.integers(0, len(raw)))
    shown_before = raw[:cut].decode(errors="ignore")
    assert shown_before + streamed(raw[:cut], raw[cut:]) == text


def test_half_a_character_before_a_control_token_is_over(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    (end,) = tokenizer.eos_token_ids
    assert StreamDecoder(tokenizer, [*SMILE[:2], end]).push(list(SMILE[2:] + b"x")).text == "\ufffd\ufffdx"
