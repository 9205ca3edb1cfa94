from __future__ import annotations

import pytest

from baton_engine.text.reasoning import ReasoningSplitter


def split(pieces: list[str], *, opened: bool = False) -> tuple[str, str]:
    splitter = ReasoningSplitter(opened=opened)
    parts = [*(splitter.push(piece) for piece in pieces), splitter.finish()]
    return "".join(part.reasoning for part in parts), "".join(part.content for part in parts)


CASES = [
    ("<think>\nLet me see.\n</think>\n\nForty-two.", False, "Let me see.", "Forty-two."),
    ("\n<think>a</think>b", False, "a", "b"),
    ("<think>\n\n</think>\n\nb", False, "", "b"),
    ("a </think> b", True, "a", "b"),
    ("<think>a</think>b", True, "a", "b"),
    ("never ends\n", True, "never ends", ""),
    ("<think>never ends </thi", False, "never ends </thi", ""),
    ("<think>a <think> b</think>c</think>d", False, "a <think> b", "c</think>d"),
    ("No thinking. <think>x</think>", False, "", "No thinking. <think>x</think>"),
    ("  <thinking>", False, "", "  <thinking>"),
    (" <thi", False, "", " <thi"),
    (" <thi", True, "<thi", ""),
    ("", True, "", ""),
    ("<think>a\n b</think>\n", False, "a\n b", ""),
]


@pytest.mark.parametrize(("text", "opened", "reasoning", "content"), CASES)
def test_each_variant_in_every_split(text: str, opened: bool, reasoning: str, content: str) -> None:
    assert split([text], opened=opened) == (reasoning, content)
    assert split(list(text), opened=opened) == (reasoning, content)
    for cut in range(len(text) + 1):
        assert split([text[:cut], text[cut:]], opened=opened) == (reasoning, content)


def test_thinking_is_shown_as_it_comes() -> None:
    splitter = ReasoningSplitter()
    assert splitter.push("<think>\n").reasoning == ""
    assert splitter.is_thinking
    assert splitter.push("Let me").reasoning == "Let me"
    assert splitter.push(" see</").reasoning == " see"
    both = splitter.push("think>So")
    assert (both.reasoning, both.content, splitter.is_thinking) == ("", "So", False)
