"""The last line of an answer over documents."""

from __future__ import annotations

import pytest

from baton_output_guardrails.sources import SourceLine

THREE = ("a.md", "b.md > B", "c.md")


@pytest.mark.parametrize(
    ("citations", "text", "line"),
    [
        ((), "See [1].", ""),
        (THREE, "See [2].", "\n\nSources: [2] b.md > B"),
        (THREE, "See [3] and [1], again [3].", "\n\nSources: [1] a.md; [3] c.md"),
        (THREE, "No number.", "\n\nSources: [1] a.md; [2] b.md > B; [3] c.md"),
        (THREE, "See [9].", "\n\nSources: [1] a.md; [2] b.md > B; [3] c.md"),
        (("a.md",), "Index [x] or [1.", "\n\nSources: [1] a.md"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 100])
def test_what_is_named(citations: tuple[str, ...], text: str, line: str, size: int) -> None:
    sources = SourceLine(citations)
    for start in range(0, len(text), size):
        sources.see(text[start : start + size])
    assert sources.line() == line
