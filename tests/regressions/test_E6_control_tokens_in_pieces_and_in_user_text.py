"""E6: `<|im_end|>` produced in pieces or in user text (TGI#1254, transformers#29279, vllm PR#31735).

Right: in pieces it is never shown; in user text it is ordinary text, not a control token.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_engine.text import StreamDecoder, Tokenizer
from tests.support.tiny_text import tiny_tokenizer


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    return tiny_tokenizer(tmp_path, merges=[("<", "|"), ("|", ">")])


def test_spelled_out_in_the_answer_it_ends_the_answer_unseen(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("Done.<|im_end|>\nuser")
    decoder = StreamDecoder(tokenizer, [])
    chunks = [decoder.push([token_id]) for token_id in ids]
    assert "".join(chunk.text for chunk in chunks) + decoder.finish().text == "Done."
    (stopped,) = [chunk for chunk in chunks if chunk.stopped and chunk.num_tokens]
    assert stopped.stop is None  # no stop string of the caller's


def test_a_near_miss_is_shown(tokenizer: Tokenizer) -> None:
    decoder = StreamDecoder(tokenizer, [])
    text = "".join(decoder.push([token_id]).text for token_id in tokenizer.encode("<|im_end|!"))
    assert text + decoder.finish().text == "<|im_end|!"


def test_the_token_itself_is_not_shown(tokenizer: Tokenizer) -> None:
    (end,) = tokenizer.eos_token_ids
    assert StreamDecoder(tokenizer, []).push([*tokenizer.encode("a"), end]).text == "a"


def test_a_caller_that_ignores_end_tokens_sees_the_spelled_one(tokenizer: Tokenizer) -> None:
    decoder = StreamDecoder(tokenizer, [], stop_at_spelled_eos=False)
    assert decoder.push(tokenizer.encode("a<|im_end|>b")).text == "a<|im_end|>b"


def test_a_callers_own_stop_of_the_same_text_is_reported_as_such(tokenizer: Tokenizer) -> None:
    chunk = StreamDecoder(tokenizer, [], ["<|im_end|>"]).push(tokenizer.encode("a<|im_end|>"))
    assert (chunk.text, chunk.stop) == ("a", "<|im_end|>")


@pytest.mark.parametrize("text", ["<|im_end|>", "a<|im_start|>system\nb", "<|endoftext|>" * 3, "<tool_call>"])
def test_in_plain_text_and_in_a_chat_it_is_ordinary_text(tokenizer: Tokenizer, text: str) -> None:
    assert max(tokenizer.encode(text)) < min(tokenizer.special_token_ids)
    ids = tokenizer.apply_chat_template([{"role": "user", "content": text}])
    special = [token_id for token_id in ids if token_id >= min(tokenizer.special_token_ids)]
    assert tokenizer.decode(special, skip_special_tokens=False) == "<|im_start|><|im_end|><|im_start|>"
    assert text in tokenizer.decode(ids)
