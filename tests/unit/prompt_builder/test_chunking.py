"""Passages keep their headings, cross none, and lose no paragraph."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from baton_prompt_builder.chunking import chunk_markdown, chunk_plain_text, pack, passage_id, split_long

PAGE = """Before any heading.

# Errors

Intro.

## 503 ##

First paragraph.

Second paragraph.

```python
# not a heading

x = 1
```

### Queue

Full.

# Another part

Last.
"""


def test_headings_make_the_path_and_fenced_code_is_no_heading() -> None:
    chunks = chunk_markdown("t", "page.md", PAGE)
    assert [(chunk.title, chunk.headings, chunk.text) for chunk in chunks] == [
        ("Errors", (), "Before any heading."),
        ("Errors", (), "Intro."),
        (
            "Errors",
            ("503",),
            "First paragraph.\n\nSecond paragraph.\n\n```python\n# not a heading\n\nx = 1\n```",
        ),
        ("Errors", ("503", "Queue"), "Full."),
        ("Errors", ("Another part",), "Last."),
    ]
    assert chunks[3].label == "Errors > 503 > Queue"
    assert chunks[3].searchable_text == "Errors > 503 > Queue\nFull."


def test_code_within_a_line_opens_no_fence() -> None:
    chunks = chunk_markdown(
        "t", "page.md", "# Start\n\n```baton up```\n\n## Stop\n\n````\n```x```\n````\n\n## Again\n\nUp."
    )
    assert [(chunk.headings, chunk.text) for chunk in chunks] == [
        ((), "```baton up```"),
        (("Stop",), "````\n```x```\n````"),
        (("Again",), "Up."),
    ]


def test_without_a_heading_the_source_is_the_title() -> None:
    (chunk,) = chunk_markdown("t", "notes.md", "Just text.")
    assert (chunk.title, chunk.headings) == ("notes.md", ())
    (skipped,) = chunk_markdown("t", "notes.md", "### Deep\n\ntext")
    assert (skipped.title, skipped.headings) == ("notes.md", ("Deep",))


def test_plain_text_has_no_headings() -> None:
    (chunk,) = chunk_plain_text("t", "log.txt", "# a line\n\nanother")
    assert (chunk.title, chunk.headings, chunk.text) == ("log.txt", (), "# a line\n\nanother")


def test_paragraphs_are_packed_up_to_the_target() -> None:
    assert list(pack(["a" * 4, "b" * 4, "c" * 4], 10)) == ["aaaa\n\nbbbb", "cccc"]
    assert list(pack([], 10)) == []


def test_a_long_paragraph_is_split_at_lines_then_sentences_then_spaces_then_anywhere() -> None:
    assert list(split_long("one two\nthree four", 10)) == ["one two", "three four"]
    assert list(split_long("One is. Two is. Three.", 15)) == ["One is. Two is.", "Three."]
    assert list(split_long("aa bb cc", 5)) == ["aa bb", "cc"]
    assert list(split_long("abcdefgh", 3)) == ["abc", "def", "gh"]


def test_ids_are_of_content_and_place() -> None:
    base = passage_id("t", "s", ("a", "b"), "text")
    assert base == passage_id("t", "s", ("a", "b"), "text")
    others = {
        passage_id("u", "s", ("a", "b"), "text"),
        passage_id("t", "z", ("a", "b"), "text"),
        passage_id("t", "s", ("a b",), "text"),
        passage_id("t", "s", ("a", "b"), "text."),
        passage_id("t", "s", ("a",), "b"),
    }
    assert len(others) == 5
    assert base not in others


def test_the_same_passage_twice_under_one_heading_is_one_chunk() -> None:
    long = "word " * 150
    assert len(chunk_markdown("t", "s", f"# H\n\n{long}\n\n{long}")) == 1


@given(st.text(alphabet=st.sampled_from("ab .#\n`-"), max_size=3000))
def test_no_passage_is_too_long_and_no_letter_is_lost(text: str) -> None:
    chunks = chunk_plain_text("t", "s", text)
    assert all(0 < len(chunk.text) <= 800 for chunk in chunks)
    found = {letter for chunk in chunks for letter in chunk.text if not letter.isspace()}
    assert found == {letter for letter in text if not letter.isspace()}


@given(st.lists(st.text(alphabet=st.sampled_from("abc xyz."), min_size=1, max_size=1200), max_size=8))
def test_packing_keeps_every_word_in_order(paragraphs: list[str]) -> None:
    packed = list(pack(paragraphs, 800))
    assert "".join("".join(packed).split()) == "".join("".join(paragraphs).split())


@pytest.mark.parametrize(
    ("line", "heading"),
    [("# A ##", "A"), ("## A # B #\t", "A # B"), ("# C#", "C#"), ("# ##", "##"), ("#\t a \t", "a")],
)
def test_a_heading_may_be_closed_by_marks(line: str, heading: str) -> None:
    (chunk,) = chunk_markdown("t", "s.md", f"{line}\n\nText.")
    assert chunk.title == heading or chunk.headings == (heading,)


def test_a_heading_with_a_sea_of_blanks_is_read_in_linear_time() -> None:
    begun = time.process_time()
    (chunk,) = chunk_markdown("t", "s.md", "# a" + " " * 200_000 + "b\n\nText.")
    assert chunk.title.startswith("a ")
    assert time.process_time() - begun < 1


def test_a_heading_as_long_as_a_book_is_not_kept_with_every_passage() -> None:
    """Else a document of a megabyte takes a gigabyte in the store, and fills every prompt."""
    heading = " ".join(f"word{number:04}" for number in range(5_000))
    paragraphs = "\n\n".join(f"{number} " * 200 for number in range(50))
    chunks = chunk_markdown("acme", "x.md", f"# {heading}\n\n{paragraphs}")
    assert len(chunks) > 90
    assert {chunk.label for chunk in chunks} == {heading[:200].rstrip()}
    text = " ".join(chunk.text for chunk in chunks)
    assert heading in text, "none of its words is lost"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\u2028", "\x0c"])
def test_lines_that_end_otherwise_are_lines(end: str) -> None:
    """And one document gives the same passages whichever way it came."""
    text = "First.\n\nSecond\n[1] line.\n"
    for chunked in (chunk_plain_text, chunk_markdown):
        assert chunked("acme", "x", text.replace("\n", end)) == chunked("acme", "x", text)
