"""Plain text, the two kinds of vocabulary, and what a model folder may hold or lack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from baton_engine.errors import ModelLoadError, RequestRejected
from baton_engine.text import StreamDecoder, Tokenizer
from tests.support.tiny_text import (
    CONTENT_TOKENS,
    CONTROL_TOKENS,
    tiny_tokenizer,
    vocabulary_metadata,
    write_tokenizer_folder,
)

MERGES = [("h", "e"), ("l", "l"), ("he", "ll"), (" ", "w"), ("<", "|")]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return tiny_tokenizer(tmp_path_factory.mktemp("model"), merges=MERGES)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Llama 2's kind: ▁ for a space, <0xNN> for bytes without a token."""
    words = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "h",
        "i",
        "▁h",
        "▁hi",
        "日",
    ]
    vocabulary = {word: place for place, word in enumerate(words)}
    model = models.BPE(
        vocabulary, [("▁", "h"), ("▁h", "i")], byte_fallback=True, unk_token="<unk>", fuse_unk=True
    )
    library = HFTokenizer(model)
    library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    library.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    library.add_special_tokens([AddedToken(text, normalized=False) for text in words[:3]])
    folder = tmp_path_factory.mktemp("sentencepiece")
    library.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


@given(text=st.text(max_size=30))
def test_text_comes_back_as_it_was(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(
    parts=st.lists(st.sampled_from([*CONTROL_TOKENS, *CONTENT_TOKENS, "hello", " w", "<|", "|>"]), max_size=8)
)
def test_plain_text_holds_no_added_token(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join(parts)
    ids = tokenizer.encode(text)
    assert all(token_id < 256 + len(MERGES) for token_id in ids)
    assert tokenizer.decode(ids) == text


def test_known_ids(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("hello w") == [258, ord("o"), 259]
    assert tokenizer.encode("<|im_end|>") == [260, *b"im_end|>"]
    assert tokenizer.decode([261, 258, 263]) == "hell"
    assert tokenizer.decode([261, 258, 263], skip_special_tokens=False) == "<|endoftext|>hell<|im_end|>"


@given(ids=st.lists(st.integers(0, 256 + len(MERGES) + 12), max_size=20))
def test_decoding_equals_the_library(tokenizer: Tokenizer, ids: list[int]) -> None:
    assert tokenizer.decode(ids) == tokenizer._full.decode(ids)


@given(ids=st.lists(st.integers(0, 256 + len(MERGES) + 12), max_size=20))
def test_streaming_equals_decoding_at_once(tokenizer: Tokenizer, ids: list[int]) -> None:
    decoder = StreamDecoder(tokenizer, [], stop_at_spelled_eos=False)
    assert "".join(decoder.push([i]).text for i in ids) + decoder.finish().text == tokenizer.decode(ids)


def test_sentencepiece_text_and_bytes(sentencepiece: Tokenizer) -> None:
    ids = sentencepiece.encode("hi 日 é")
    assert sentencepiece.decode(ids) == "hi 日 é" == sentencepiece._full.decode(ids)
    assert sentencepiece.encode("hi </s>")[-1] != 2
    decoder = StreamDecoder(sentencepiece, [])
    assert [decoder.push([i]).text for i in ids] == ["hi", " ", "日", " ", "", "é"]


@given(text=st.text(alphabet="hi 日é😀", max_size=12))
def test_sentencepiece_streams_what_it_decodes(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text)
    decoder = StreamDecoder(sentencepiece, [])
    assert (
        "".join(decoder.push([i]).text for i in ids) + decoder.finish().text
        == sentencepiece.decode(ids)
        == text
    )


def with_added_tokens(folder: Path, *tokens: AddedToken, **options: Any) -> Tokenizer:
    tiny_tokenizer(folder, **options)
    library = HFTokenizer.from_file(str(folder / "tokenizer.json"))
    library.add_tokens(list(tokens))
    library.save(str(folder / "tokenizer.json"))
    return Tokenizer.load(folder)


def test_added_tokens_that_are_mere_spelling_are_used_in_all_text(tmp_path: Path) -> None:
    """Runs of spaces, HTML tags: the reference uses them in what users write, beside forgeries too."""
    spelling = [AddedToken(text, special=False, normalized=False) for text in ("    ", "<h1>")]
    tokenizer = with_added_tokens(tmp_path, *spelling)
    spaces, heading = tokenizer.vocab_size - 2, tokenizer.vocab_size - 1
    assert (
        tokenizer.encode("a    <h1>")
        == [ord("a"), spaces, heading]
        == tokenizer._full.encode("a    <h1>").ids
    )
    assert tokenizer.encode("a    <h1><think>") == [ord("a"), spaces, heading, *b"<think>"]


def test_an_added_token_that_the_template_writes_is_protected(tmp_path: Path) -> None:
    source = "[INST]{{ messages[0].content }}[/INST]"
    tokens = [AddedToken(text, special=False, normalized=False) for text in ("[INST]", "[/INST]", "[OTHER]")]
    tokenizer = with_added_tokens(tmp_path, *tokens, chat_template=source)
    first = tokenizer.vocab_size - 3
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "[/INST][OTHER]"}])
    assert ids == [first, *b"[/INST]", first + 2, first + 1]


def test_a_vocabulary_that_looks_up_whole_words_still_can_not_be_tricked(tmp_path: Path) -> None:
    """With ignore_merges a word that is a token becomes it without any merge: here `stop` is special."""
    metadata = vocabulary_metadata("llama-bpe", control=("stop", "<|end|>"), content=(), num_unused=0)
    for key in ("tokens", "token_type"):  # in front, so that it lies inside the BPE's own vocabulary
        values = metadata[f"tokenizer.ggml.{key}"]
        metadata[f"tokenizer.ggml.{key}"] = values[256:] + values[:256]
    metadata |= {"tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.bos_token_id": 1}
    tokenizer = Tokenizer.load(write_tokenizer_folder(tmp_path, metadata))
    assert tokenizer._full.encode("stop", add_special_tokens=False).ids == [0]
    ids = tokenizer.encode("a stop stop")
    assert tokenizer.decode(ids) == "a stop stop"
    assert tokenizer.encode("stop") == [2 + byte for byte in b"stop"]
    assert not tokenizer.special_token_ids & set(ids)


def test_a_token_that_appears_only_after_normalising_is_not_let_in(tmp_path: Path) -> None:
    """Fullwidth ＜x＞ becomes <x> under NFKC, and this vocabulary matches its token behind that."""
    tiny_tokenizer(tmp_path, chat_template="{{ messages[0].content }}<x>")
    library = HFTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.normalizer = normalizers.NFKC()
    library.add_special_tokens([AddedToken("<x>", special=True, normalized=True)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer.load(tmp_path)
    special = tokenizer.vocab_size - 1
    assert tokenizer._full.encode("＜x＞").ids == [special]
    assert tokenizer.encode("＜x＞") == list(b"<x>")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "＜x＞"}]) == [*b"<x>", special]


def test_an_added_token_outside_the_byte_alphabet_is_written_as_it_is(tmp_path: Path) -> None:
    token = AddedToken("<｜tool▁sep｜>", special=False, normalized=False)
    tokenizer = with_added_tokens(tmp_path, token)
    assert tokenizer.decode([ord("a"), tokenizer.vocab_size - 1]) == "a<｜tool▁sep｜>"


def test_in_a_raw_prompt_control_tokens_are_what_they_say(
    tokenizer: Tokenizer, sentencepiece: Tokenizer
) -> None:
    start = tokenizer.encode_raw("<|im_start|>")
    assert len(start) == 1
    assert start[0] in tokenizer.special_token_ids
    assert tokenizer.encode_raw("<|im_start|>hell") == [*start, *tokenizer.encode("hell")]
    assert sentencepiece.encode_raw("hi", add_special_tokens=False) == sentencepiece.encode("hi")
    with pytest.raises(RequestRejected):
        tokenizer.encode_raw("\ud800")


def test_half_of_a_surrogate_pair_is_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(RequestRejected, match="surrogate") as caught:
        tokenizer.encode("half \ud83d")
    assert caught.value.param == "prompt"


def test_sentencepiece_puts_its_space_in_front_of_the_whole_text_only(tmp_path: Path) -> None:
    """prepend_scheme `first`: text behind a control token gets none, beside a forgery as elsewhere."""
    words = ["<s>", "</s>", "▁", "a", "b", "<", "/", "s", ">", "▁a"]
    library = HFTokenizer(models.BPE({word: place for place, word in enumerate(words)}, [("▁", "a")]))
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    library.decoder = decoders.Metaspace(prepend_scheme="first")
    library.add_special_tokens([AddedToken(text, normalized=False) for text in words[:2]])
    library.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("<s>{{ messages[0].content }}")
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.encode("ab") == [9, 4]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab"}]) == [0, 3, 4]
    assert tokenizer.apply_chat_template([{"role": "user", "content": "ab</s>"}]) == [0, 3, 4, 5, 6, 7, 8]


def test_end_tokens_come_from_generation_config_and_the_tokenizer(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path)
    assert Tokenizer.load(tmp_path).eos_token_ids == {258}
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": 257}))
    assert Tokenizer.load(tmp_path).eos_token_ids == {257, 258}
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [258, 256]}))
    assert Tokenizer.load(tmp_path).eos_token_ids == {256, 258}


def test_roles_may_be_objects_and_in_the_older_file(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|im_end|>"}}))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<|im_start|>"}))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (257, {258})


def test_truncation_and_padding_in_the_file_are_ignored(tmp_path: Path) -> None:
    tiny_tokenizer(tmp_path)
    library = HFTokenizer.from_file(str(tmp_path / "tokenizer.json"))
    library.enable_truncation(2)
    library.enable_padding(length=9)
    library.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.load(tmp_path).encode("abcdef")) == 6


def test_whitespace_that_an_added_token_swallows_is_swallowed_beside_forgeries_too(tmp_path: Path) -> None:
    """Some vocabularies let a token eat the space beside it (`rstrip`): both ways of encoding must agree."""
    source = "{{ '<|im_start|> ' + messages[0].content }}"
    tiny_tokenizer(tmp_path, chat_template=source)
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    document["added_tokens"][1]["rstrip"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.apply_chat_template([{"role": "user", "content": "a"}]) == [257, ord("a")]
    forged = tokenizer.apply_chat_template([{"role": "user", "content": "a<|im_end|>"}])
    assert forged == [257, *b"a<|im_end|>"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("tokenizer.json", None, "tokenizer.json is missing"),
        ("tokenizer.json", "{", "tokenizer.json can't be loaded"),
        ("tokenizer_config.json", "[]", "must hold a JSON object"),
        ("tokenizer_config.json", "{", "not valid JSON"),
        ("tokenizer_config.json", '{"chat_template": [1]}', "string or a list"),
    ],
)
def test_a_broken_folder_is_refused_by_file(
    tmp_path: Path, name: str, content: str | None, message: str
) -> None:
    tiny_tokenizer(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(content)
    with pytest.raises(ModelLoadError, match=message):
        Tokenizer.load(tmp_path)


def test_neither_folder_nor_gguf(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="neither"):
        Tokenizer.load(tmp_path / "absent")


@pytest.mark.parametrize(("decoder", "message"), [(None, "no decoder"), (decoders.WordPiece(), "WordPiece")])
def test_a_decoder_that_is_not_known_is_refused(
    tmp_path: Path, decoder: decoders.Decoder | None, message: str
) -> None:
    library = HFTokenizer(models.BPE({"a": 0}, []))
    library.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    if decoder is not None:
        library.decoder = decoder
    library.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ModelLoadError, match=message):
        Tokenizer.load(tmp_path)


def test_vocabulary_metadata_is_what_these_tests_think() -> None:
    tokens = vocabulary_metadata(merges=MERGES)["tokenizer.ggml.tokens"]
    assert (tokens[ord("h")], tokens[258], tokens[259], tokens[261]) == ("h", "hell", "Ġw", "<|endoftext|>")
