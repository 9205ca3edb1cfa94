"""Plain text, the two kinds of vocabulary, and what a model folder may hold or lack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HFTokenizer

from baton_engine.errors import ModelLoadError
from baton_engine.text import StreamDecoder, Tokenizer
from tests.support.tiny_text import CONTENT_TOKENS, CONTROL_TOKENS, tiny_tokenizer, vocabulary_metadata

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
