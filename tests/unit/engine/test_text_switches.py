"""What of sampling concerns the text reaches the decoder."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_engine import SamplingParams
from baton_engine.assembly import decoders_of
from tests.support.tiny_text import tiny_tokenizer


@pytest.mark.parametrize(
    ("sampling", "shown"),
    [
        (SamplingParams(), "hello!"),
        (SamplingParams(skip_special_tokens=False), "hello<|im_end|>!"),
        (SamplingParams(stop=("ll",)), "he"),
        (SamplingParams(stop=("ll",), include_stop_str_in_output=True), "hell"),
        (SamplingParams(stop=("ll",), min_tokens=7), "hello!"),
    ],
)
def test_switches(tmp_path: Path, sampling: SamplingParams, shown: str) -> None:
    tokenizer = tiny_tokenizer(tmp_path)
    (end,) = tokenizer.eos_token_ids  # <|im_end|>
    decoder = decoders_of(tokenizer)([], sampling)
    assert decoder.push([*b"hello", end, *b"!"]).text + decoder.finish().text == shown
