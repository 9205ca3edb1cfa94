"""Pre-tokenizers that GGUF only names, against ids known from each family's rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton_engine.errors import ModelLoadError
from baton_engine.text import Tokenizer
from baton_engine.text.gguf_tokenizer import build_tokenizer, tokenizer_config, tokenizer_document
from tests.support.tiny_text import (
    CONTENT_TOKENS,
    CONTROL_TOKENS,
    UNUSED,
    bpe_letters,
    tiny_tokenizer,
    vocabulary_metadata,
)

DIGIT_MERGES = [("1", "2"), ("12", "3"), ("123", "4")]


def spelled(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.decode([token_id]) for token_id in tokenizer.encode(text)]


@pytest.mark.parametrize(
    ("pre", "tokens"),
    [
        ("gpt-2", ["1234"]),  # \p{N}+
        ("llama-bpe", ["123", "4"]),  # \p{N}{1,3}
        ("qwen2", ["1", "2", "3", "4"]),  # \p{N}
        ("smollm", ["1", "2", "3", "4"]),  # Digits, one by one
    ],
)
def test_each_family_splits_digits_its_own_way(tmp_path: Path, pre: str, tokens: list[str]) -> None:
    tokenizer = tiny_tokenizer(tmp_path, pre=pre, merges=DIGIT_MERGES)
    assert spelled(tokenizer, "1234") == tokens


@pytest.mark.parametrize("pair", ["½½", "ⅧⅧ", "²²", "٣٣"])
def test_smollm_splits_every_numeral_and_not_only_ascii_digits(pair: str) -> None:
    """A token of both exists; GPT-2's rule uses it, SmolLM's must not."""
    numeral = pair[0]
    letters = list(bpe_letters(numeral))
    merges = [f"{''.join(letters[:n])} {letters[n]}" for n in range(1, len(letters))]
    merges.append(f"{''.join(letters)} {''.join(letters)}")
    sizes: dict[str, int] = {}
    for pre in ("gpt-2", "smollm"):
        metadata = vocabulary_metadata(pre)
        tokens = [*metadata["tokenizer.ggml.tokens"][:256], *(merge.replace(" ", "") for merge in merges)]
        metadata |= {
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [1] * len(tokens),
            "tokenizer.ggml.merges": merges,
        }
        sizes[pre] = len(build_tokenizer(metadata).encode(pair).ids)
    assert sizes == {"gpt-2": 1, "smollm": 2}


def test_qwen_composes_characters_first(tmp_path: Path) -> None:
    composed, apart = "caf\u00e9", "cafe\u0301"
    qwen, gpt2 = (tiny_tokenizer(tmp_path / pre, pre=pre) for pre in ("qwen2", "gpt-2"))
    assert qwen.encode(apart) == qwen.encode(composed) == list(composed.encode())
    assert gpt2.encode(apart) != gpt2.encode(composed)


@pytest.mark.parametrize(
    ("pre", "text", "tokens"),
    [
        ("qwen2", "don't", ["don", "'t"]),
        ("qwen2", "A'TB", ["A", "'T", "B"]),  # contractions in any case
        ("gpt-2", "DON'T", ["DON", "'", "T"]),
        ("qwen2", "a\n\n b", ["a", "\n\n", " b"]),  # line ends stay together
        ("llama-bpe", "x=(y", ["x", "=(", "y"]),
    ],
)
def test_words_are_cut_as_the_pattern_says(pre: str, text: str, tokens: list[str]) -> None:
    pieces = build_tokenizer(vocabulary_metadata(pre)).pre_tokenizer.pre_tokenize_str(text)
    assert [piece for piece, _ in pieces] == [bpe_letters(token) for token in tokens]


def test_llama3_takes_a_whole_word_from_the_vocabulary_even_without_merges() -> None:
    """ignore_merges: `abc` is a token, and no merge leads to it."""
    for pre, expected in (("llama-bpe", ["abc"]), ("qwen2", ["a", "b", "c"])):
        metadata = vocabulary_metadata(pre)
        metadata["tokenizer.ggml.tokens"][256] = "abc"
        metadata["tokenizer.ggml.token_type"][256] = 1
        assert build_tokenizer(metadata).encode("abc").tokens == expected


def test_special_tokens_keep_their_ids_and_kinds_and_unused_ids_have_no_token(tmp_path: Path) -> None:
    tokenizer = tiny_tokenizer(tmp_path, num_unused=3)
    first = 256
    assert tokenizer.special_token_ids == set(range(first, first + len(CONTROL_TOKENS)))
    assert tokenizer.vocab_size == first + len(CONTROL_TOKENS) + len(CONTENT_TOKENS)
    assert tokenizer.decode([first + len(CONTROL_TOKENS)]) == "<tool_call>"
    assert tokenizer.decode([tokenizer.vocab_size, 10_000, -1]) == ""


def test_special_tokens_in_front_of_the_vocabulary_keep_their_ids() -> None:
    """SmolLM2's lie at 0 to 16."""
    metadata = vocabulary_metadata()
    count = len(metadata["tokenizer.ggml.tokens"])
    for key in ("tokens", "token_type"):
        values = metadata[f"tokenizer.ggml.{key}"]
        metadata[f"tokenizer.ggml.{key}"] = values[256:] + values[:256]
    tokenizer = build_tokenizer(metadata)
    ids = tokenizer.encode("<|endoftext|>a<think>", add_special_tokens=False).ids
    assert ids == [0, count - 256 + ord("a"), 7]


def test_special_tokens_behind_a_gap_keep_their_ids() -> None:
    metadata = vocabulary_metadata(num_unused=0)
    metadata["tokenizer.ggml.token_type"][257] = UNUSED
    assert build_tokenizer(metadata).token_to_id("<|im_end|>") == 258


def test_bos_is_put_in_front_only_where_the_file_says_so(tmp_path: Path) -> None:
    metadata = vocabulary_metadata(**{"tokenizer.ggml.add_bos_token": True})
    assert build_tokenizer(metadata).encode("a").ids == [256, ord("a")]
    assert build_tokenizer(vocabulary_metadata()).encode("a").ids == [ord("a")]


def test_the_config_names_roles_template_and_context() -> None:
    config = tokenizer_config(vocabulary_metadata())
    assert (config["eos_token"], config["bos_token"]) == ("<|im_end|>", "<|endoftext|>")
    assert config["model_max_length"] == 256
    assert "<|im_start|>" in config["chat_template"]
    assert config["added_tokens_decoder"]["256"]["special"] is True
    assert config["added_tokens_decoder"]["259"]["special"] is False


def test_the_document_is_what_the_library_writes_back(tmp_path: Path) -> None:
    metadata = vocabulary_metadata("smollm", DIGIT_MERGES)
    assert json.loads(build_tokenizer(metadata).to_str()) == tokenizer_document(metadata)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokenizer.ggml.pre": "made-up"}, "'made-up'"),
        ({"tokenizer.ggml.pre": None}, "None"),
        ({"tokenizer.ggml.model": "llama"}, "'llama'"),
        ({"tokenizer.ggml.tokens": []}, "no vocabulary"),
        ({"tokenizer.ggml.token_type": [1]}, "1 token types"),
        ({"tokenizer.ggml.merges": ["zz zz"]}, "byte-level BPE"),
    ],
)
def test_what_can_not_be_exact_is_refused_by_name(change: dict[str, object], message: str) -> None:
    with pytest.raises(ModelLoadError, match=message):
        build_tokenizer(vocabulary_metadata() | change)
