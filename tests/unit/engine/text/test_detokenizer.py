"""Streaming: any split of the ids shows the same text, nothing too early and nothing too late."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from baton_engine.text import StreamDecoder
from tests.support.tiny_text import BytePieces

# Texts whose characters have 1 to 4 bytes, and joined emoji; and bytes that are no text at all.
TEXTS = st.text(alphabet="ab<>é日👩\u200d\u0301 \n", max_size=20)
RAW = st.one_of(TEXTS.map(str.encode), st.binary(max_size=12))
STOPS = st.lists(st.text(alphabet="ab<é日", min_size=1, max_size=3), max_size=3)


@st.composite
def cut(draw: st.DrawFn, raw: st.SearchStrategy[bytes]) -> list[bytes]:
    """Bytes in pieces, which need not end where characters do."""
    value = draw(raw)
    places = sorted(draw(st.lists(st.integers(0, len(value)), max_size=8)))
    return [value[start:end] for start, end in zip([0, *places], [*places, len(value)], strict=True)]


def stream(decoder: StreamDecoder, pushes: Sequence[Sequence[int]]) -> tuple[list[str], str | None]:
    chunks = [decoder.push(push) for push in pushes]
    chunks.append(decoder.finish())
    return [chunk.text for chunk in chunks], next((chunk.stop for chunk in chunks if chunk.stop), None)


def first_complete(text: str, stops: list[str]) -> tuple[str, str | None]:
    for end in range(1, len(text) + 1):
        ending_here = [stop for stop in stops if text[:end].endswith(stop)]
        if ending_here:
            return text[: end - len(max(ending_here, key=len))], max(ending_here, key=len)
    return text, None


def in_pushes(data: st.DataObject, ids: list[int]) -> list[list[int]]:
    places = sorted(data.draw(st.lists(st.integers(0, len(ids)), max_size=6)))
    return [ids[start:end] for start, end in zip([0, *places], [*places, len(ids)], strict=True)]


@given(st.data(), cut(RAW), STOPS)
def test_any_split_into_pushes_shows_the_text_up_to_the_first_stop(
    data: st.DataObject, pieces: list[bytes], stops: list[str]
) -> None:
    tokens = BytePieces(pieces)
    shown, stop = stream(StreamDecoder(tokens, [], stops), in_pushes(data, tokens.ids))
    assert ("".join(shown), stop) == first_complete(b"".join(pieces).decode(errors="replace"), stops)


@given(cut(TEXTS.map(str.encode)))
def test_whole_text_never_shows_a_replacement_character(pieces: list[bytes]) -> None:
    tokens = BytePieces(pieces)
    shown, _ = stream(StreamDecoder(tokens, []), [[i] for i in tokens.ids])
    assert not any("\ufffd" in text for text in shown)


@given(cut(TEXTS.map(str.encode)))
def test_each_character_is_shown_with_its_last_byte(pieces: list[bytes]) -> None:
    tokens, decoder, seen, shown = BytePieces(pieces), None, b"", ""
    decoder = StreamDecoder(tokens, [])
    for token_id, piece in enumerate(pieces):
        seen += piece
        shown += decoder.push([token_id]).text
        assert shown == seen.decode(errors="ignore")


def test_an_emoji_over_four_tokens_comes_whole() -> None:
    tokens = BytePieces([b"\xf0", b"\x9f", b"\x98", b"\x80", b"!"])
    shown, _ = stream(StreamDecoder(tokens, []), [[i] for i in tokens.ids])
    assert shown == ["", "", "", "😀", "!", ""]


def test_an_unfinished_character_becomes_one_replacement_character_at_the_end() -> None:
    tokens = BytePieces([b"a\xf0\x9f", b"\x98"])
    shown, _ = stream(StreamDecoder(tokens, []), [[0], [1]])
    assert shown == ["a", "", "\ufffd"]


def test_bytes_that_can_never_be_text_are_shown_as_soon_as_that_is_certain() -> None:
    tokens = BytePieces([b"\xe6\x97", b"a"])
    shown, _ = stream(StreamDecoder(tokens, []), [[0], [1]])
    assert shown == ["", "\ufffda", ""]


def test_num_tokens_counts_up_to_the_token_that_completed_the_stop() -> None:
    tokens = BytePieces([b"one ", b"ST", b"OP two", b" three"])
    chunk = StreamDecoder(tokens, [], ["STOP"]).push([0, 1, 2, 3])
    assert (chunk.text, chunk.stopped, chunk.stop, chunk.num_tokens) == ("one ", True, "STOP", 3)


def test_ids_after_a_stop_are_ignored() -> None:
    tokens = BytePieces([b"STOP", b"more"])
    decoder = StreamDecoder(tokens, [], ["STOP"])
    assert decoder.push([0]).stopped
    late = decoder.push([1])
    assert (late.text, late.stopped, late.num_tokens) == ("", True, 0)
    assert (decoder.finish().text, decoder.finish().stopped) == ("", True)


def test_include_stop_ends_the_text_with_the_stop_string() -> None:
    tokens = BytePieces([b"one ST", b"OP two"])
    decoder = StreamDecoder(tokens, [], ["STOP"], include_stop=True)
    assert decoder.push([0]).text == "one "
    assert decoder.push([1]).text == "STOP"


def test_stops_are_ignored_for_min_tokens_and_must_begin_after_them() -> None:
    tokens = BytePieces([b"a\n", b"b\n", b"c", b"\nd"])
    decoder = StreamDecoder(tokens, [], ["\n"], min_tokens=2)
    assert [decoder.push([i]).text for i in (0, 1, 2)] == ["a\n", "b\n", "c"]
    assert decoder.push([3]).stop == "\n"
    split = StreamDecoder(BytePieces([b"S", b"TOP"]), [], ["STOP"], min_tokens=1)
    assert (split.push([0]).text, split.push([1]).text) == ("S", "TOP")


def test_special_tokens_are_skipped_or_shown() -> None:
    tokens = BytePieces([b"a", b"<|x|>", b"b"], special_token_ids=frozenset({1}))
    assert StreamDecoder(tokens, []).push([0, 1, 2]).text == "ab"
    assert StreamDecoder(tokens, [], skip_special_tokens=False).push([0, 1, 2]).text == "a<|x|>b"


def test_the_first_space_of_a_sentencepiece_text_is_stripped_only_at_its_very_start() -> None:
    tokens = BytePieces([b" Hello", b" world"], strips_first_space=True)
    assert StreamDecoder(tokens, []).push([0, 1]).text == "Hello world"
    assert StreamDecoder(tokens, [0]).push([1]).text == " world"


def test_a_long_answer_costs_linear_time() -> None:
    """A stop that almost matches forever must not be rescanned from its beginning each time."""
    calls = 0

    class Counting(BytePieces):
        def token_bytes(self, token_id: int) -> bytes:
            nonlocal calls
            calls += 1
            return super().token_bytes(token_id)

    tokens = Counting([b"a"])
    decoder = StreamDecoder(tokens, [0] * 1000, ["a" * 50 + "b"])
    calls = 0
    held = sum(len(decoder.push([0]).text) for _ in range(5000))
    assert (calls, held) == (5000, 4950)
