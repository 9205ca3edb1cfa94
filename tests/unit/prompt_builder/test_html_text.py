"""HTML becomes text with its headings; what nobody reads is left out; hostile input is only input."""

from __future__ import annotations

import pytest

from baton_prompt_builder.html_text import NestedTooDeep, html_to_markdown

PAGE = """<!doctype html><html><head><title>Site | Errors</title><style>p {color: red}</style></head><body>
<nav><a href="/">Home</a></nav><h1>Errors &amp; causes</h1><p>The <b>queue</b> is
  full.</p><h2>What to do</h2><ul><li>Wait<li>Retry <code>later</code></ul>
<pre>curl -N
  host</pre><script>alert("x")</script><table><tr><th>Code</th><th>Meaning</th></tr><tr><td>503</td><td>busy</td>
</tr></table><p>a<br>b</body></html>"""


def test_a_page_becomes_markdown() -> None:
    assert html_to_markdown(PAGE) == (
        "# Errors & causes\n\nThe queue is full.\n\n## What to do\n\n- Wait\n\n- Retry later\n\n"
        "```\ncurl -N\n  host\n```\n\nCode | Meaning |\n\n503 | busy |\n\na\nb"
    )


def test_backticks_in_code_do_not_end_it() -> None:
    page = "<p>So:</p><pre>```python\nx = `y`\n```\n# no heading</pre><p>end</p>"
    assert html_to_markdown(page) == "So:\n\n````\n```python\nx = `y`\n```\n# no heading\n````\n\nend"


def test_the_title_is_the_heading_of_a_page_without_one() -> None:
    page = "<head><title> A\n title </title></head><p>text</p><h2>part</h2><p>more</p>"
    assert html_to_markdown(page) == "# A title\n\ntext\n\n## part\n\nmore"


def test_nothing_readable_is_nothing() -> None:
    assert html_to_markdown("") == ""
    assert html_to_markdown("<html><head><title>t</title></head><body><script>x</script></body>") == ""
    assert html_to_markdown("only text") == "only text"


def test_deep_nesting_is_refused_and_unclosed_tags_are_not() -> None:
    """The parser needs 3 s for 40,000 nested elements, and four times that for twice as many."""
    assert html_to_markdown("<div>" * 900 + "inside") == "inside"
    with pytest.raises(NestedTooDeep, match="1000"):
        html_to_markdown("<div>" * 1001 + "inside")
    with pytest.raises(NestedTooDeep, match="1000"):
        html_to_markdown("<div></span>" * 1001 + "inside")
    assert html_to_markdown("<p>x<li>y<br>" * 2000).count("x") == 2000
    assert html_to_markdown("<div>a</div></span>" * 2000).count("a") == 2000
