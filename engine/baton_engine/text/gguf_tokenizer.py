"""Rebuilds a Hugging Face `tokenizer.json` and `tokenizer_config.json` from GGUF metadata, exactly.

Owns the pre-tokenizers that `tokenizer.ggml.pre` names: GGUF stores only the name, so each rule here is
the one the original tokenizer.json of that family states. An unknown name is refused, because a guess
gives token ids that are nearly right. Reads no files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tokenizers import Tokenizer as HFTokenizer

from baton_engine.errors import ModelLoadError

_NORMAL, _CONTROL, _USER_DEFINED, _UNUSED = 1, 3, 4, 5

_CONTRACTIONS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_QWEN2_WORDS: Final = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_WORDS: Final = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _byte_level(use_regex: bool, trim_offsets: bool = True) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": trim_offsets,
        "use_regex": use_regex,
    }


def _split_then_bytes(pattern: str, trim_offsets: bool) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _byte_level(False, trim_offsets)]}


@dataclass(frozen=True)
class _Family:
    """What the original tokenizer.json of one family says beside its vocabulary."""

    pre_tokenizer: dict[str, Any]
    normalizer: dict[str, Any] | None = None
    ignore_merges: bool = False


_SMOLLM: Final = _Family(
    {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, _byte_level(True)],
    }
)
_QWEN2: Final = _Family(_split_then_bytes(_QWEN2_WORDS, trim_offsets=False), {"type": "NFC"})
_LLAMA3: Final = _Family(_split_then_bytes(_LLAMA3_WORDS, trim_offsets=True), ignore_merges=True)
_GPT2: Final = _Family(_byte_level(True))

_FAMILIES: Final = {
    "smollm": _SMOLLM,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "gpt-2": _GPT2,
}


def build_tokenizer(metadata: Mapping[str, Any]) -> HFTokenizer:
    """The tokenizer that `metadata` describes. Raises ModelLoadError where it can't be exact."""
    document = tokenizer_document(metadata)
    try:
        tokenizer = HFTokenizer.from_str(json.dumps(document, ensure_ascii=False))
    except Exception as error:  # the library raises bare Exception for every parse failure
        raise ModelLoadError(f"The GGUF vocabulary can't be loaded as a byte-level BPE: {error}") from error
    for added in document["added_tokens"]:
        if tokenizer.token_to_id(added["content"]) != added["id"]:
            raise ModelLoadError(f"GGUF token {added['content']!r} can't keep its id {added['id']}")
    return tokenizer


def tokenizer_document(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of tokenizer.json."""
    family = _family(metadata)
    tokens, kinds = _tokens_and_kinds(metadata)
    special = [i for i, kind in enumerate(kinds) if kind in (_CONTROL, _USER_DEFINED)]
    used = [i for i, kind in enumerate(kinds) if kind != _UNUSED]
    outside = _added_after_vocabulary(used, set(special))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(i, tokens[i], kinds[i] == _CONTROL) for i in special],
        "normalizer": family.normalizer,
        "pre_tokenizer": family.pre_tokenizer,
        "post_processor": _post_processor(metadata, tokens),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": family.ignore_merges,
            "vocab": {tokens[i]: i for i in used if i not in outside},
            "merges": [_merge_pair(merge) for merge in metadata.get("tokenizer.ggml.merges", ())],
        },
    }


def tokenizer_config(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The content of tokenizer_config.json: the chat template and the names of the special tokens."""
    tokens, kinds = _tokens_and_kinds(metadata)
    context = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "add_bos_token": bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        "add_prefix_space": False,
        "model_max_length": int(context) if context is not None else 10**30,
        "added_tokens_decoder": {
            str(i): {k: v for k, v in _added_token(i, tokens[i], kind == _CONTROL).items() if k != "id"}
            for i, kind in enumerate(kinds)
            if kind in (_CONTROL, _USER_DEFINED)
        },
    }
    for name, role in (("bos", "bos"), ("eos", "eos"), ("unknown", "unk"), ("padding", "pad")):
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is not None:
            config[f"{role}_token"] = tokens[token_id]
    template = metadata.get("tokenizer.chat_template")
    return config if template is None else config | {"chat_template": template}


def _family(metadata: Mapping[str, Any]) -> _Family:
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise ModelLoadError(
            f"GGUF tokenizer model {model!r} is not supported (only 'gpt2', byte-level BPE). "
            "Use the model's Hugging Face folder, which carries its own tokenizer.json."
        )
    name = metadata.get("tokenizer.ggml.pre")
    if name not in _FAMILIES:
        known = ", ".join(sorted(_FAMILIES))
        raise ModelLoadError(
            f"GGUF pre-tokenizer {name!r} (tokenizer.ggml.pre) is not known (known: {known}). "
            "Use the model's Hugging Face folder, which carries its own tokenizer.json."
        )
    return _FAMILIES[name]


def _tokens_and_kinds(metadata: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    if not tokens:
        raise ModelLoadError("The GGUF file holds no vocabulary (tokenizer.ggml.tokens)")
    kinds = metadata.get("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if len(kinds) != len(tokens):
        raise ModelLoadError(f"The GGUF file has {len(tokens)} tokens but {len(kinds)} token types")
    return tokens, kinds


def _added_after_vocabulary(used: list[int], special: set[int]) -> set[int]:
    """Special tokens that follow the last ordinary one stay out of the BPE vocabulary, as in the originals.

    The library numbers such tokens itself, counting on from the size of the vocabulary; that gives their
    ids back only if nothing is missing below them. Otherwise they stay inside, where ids are explicit.
    """
    ordinary = [i for i in used if i not in special]
    last = ordinary[-1] if ordinary else -1
    outside = [i for i in used if i > last]
    dense = used == list(range(len(used)))
    return set(outside) if dense else set()


def _added_token(token_id: int, content: str, special: bool) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def _post_processor(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, Any] | None:
    """A BOS in front of plain text, for the models that were trained with one."""
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    if not metadata.get("tokenizer.ggml.add_bos_token", False) or bos is None:
        return None
    content = tokens[bos]
    text = {"Sequence": {"id": "A", "type_id": 0}}
    pair = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": content, "type_id": 0}}, text],
        "pair": [{"SpecialToken": {"id": content, "type_id": 0}}, text, pair],
        "special_tokens": {content: {"id": content, "ids": [bos], "tokens": [content]}},
    }


def _merge_pair(merge: str) -> list[str]:
    """`"Ġ t"` → `["Ġ", "t"]`; the second half may itself hold no space in a byte-level vocabulary."""
    left, _, right = merge.partition(" ")
    return [left, right]
