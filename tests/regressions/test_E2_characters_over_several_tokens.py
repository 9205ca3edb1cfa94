"""E2: an answer with emoji, CJK and combining marks, each over several tokens (exo PR#1691, vllm-mlx PR#109).

Right: no U+FFFD in any chunk; joined chunks equal the non-streamed text.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_engine.text import StreamDecoder
from tests.support.tiny_text import tiny_tokenizer

TEXT = "👩‍👩‍👧 ok 日本語 e\u0301 🇩🇪 ½ Ⅷ ক্ষ 👍🏽."


@pytest.mark.parametrize("merges", [[], [(" ", "o"), (" o", "k")]])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_are_whole_and_join_to_the_text(
    tmp_path: Path, merges: list[tuple[str, str]], size: int
) -> None:
    tokenizer = tiny_tokenizer(tmp_path, merges=merges)
    ids = tokenizer.encode(TEXT)
    assert len(ids) > 50
    decoder = StreamDecoder(tokenizer, tokenizer.encode("prompt"))
    chunks = [decoder.push(ids[start : start + size]).text for start in range(0, len(ids), size)]
    chunks.append(decoder.finish().text)
    assert not any("\ufffd" in chunk for chunk in chunks)
    assert "".join(chunks) == TEXT == tokenizer.decode(ids)


def test_each_character_comes_with_its_last_token(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    decoder = StreamDecoder(tokenizer, [])
    chunks = [decoder.push([token_id]).text for token_id in tokenizer.encode("日é!")]
    assert chunks == ["", "", "日", "", "é", "!"]
