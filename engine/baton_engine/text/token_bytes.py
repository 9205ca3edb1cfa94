"""The bytes that each token id stands for.

Owns the reading of tokenizer.json's decoder: byte-level alphabets (GPT-2, Llama 3, Qwen, SmolLM) and
SentencePiece vocabularies with byte fallback (Llama 2, Mistral). Bytes, not text, are the unit: a
character may be spread over tokens, and only the caller sees them in order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from tokenizers import Tokenizer as HFTokenizer

from baton_engine.errors import ModelLoadError

_BYTE_TOKEN: Final = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE_MARK: Final = "▁"


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins: visible Latin-1 characters stand for themselves, the rest for U+0100…"""
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    alphabet = {chr(byte): byte for byte in visible}
    return alphabet | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTE_OF_CHARACTER: Final = _byte_alphabet()


class TokenBytes:
    """Looks up `token id → bytes`, remembering what it has looked up. Ids without a token are empty."""

    def __init__(self, tokenizer: HFTokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, bytes] = {}
        if tokenizer.decoder is None:
            raise ModelLoadError("tokenizer.json states no decoder, so tokens can't be turned back into text")
        parts = _decoder_parts(json.loads(tokenizer.decoder.__getstate__()))
        self._convert = _converter(parts)
        # SentencePiece puts a space in front of the whole text; decoding takes it away again, once.
        self.strips_first_space = "ByteLevel" not in parts and ("Strip" in parts or "Metaspace" in parts)

    def of(self, token_id: int) -> bytes:
        found = self._known.get(token_id)
        if found is None:
            token = self._tokenizer.id_to_token(token_id) if token_id >= 0 else None
            found = self._known[token_id] = b"" if token is None else self._convert(token)
        return found


def _decoder_parts(decoder: Mapping[str, Any]) -> set[str]:
    if decoder["type"] == "Sequence":
        return set[str]().union(*(_decoder_parts(part) for part in decoder["decoders"]))
    return {decoder["type"]}


def _converter(parts: set[str]) -> Callable[[str], bytes]:
    if "ByteLevel" in parts:
        return _from_byte_alphabet
    if "ByteFallback" in parts:
        return _from_sentencepiece_with_bytes
    if "Metaspace" in parts:
        return _from_sentencepiece
    raise ModelLoadError(
        f"tokenizer.json has a decoder of {', '.join(sorted(parts))}; "
        "only ByteLevel, ByteFallback and Metaspace decoders are supported"
    )


def _from_byte_alphabet(token: str) -> bytes:
    try:
        return bytes(_BYTE_OF_CHARACTER[character] for character in token)
    except KeyError:  # an added token, written out as it is
        return token.encode("utf-8")


def _from_sentencepiece(token: str) -> bytes:
    return token.replace(_SPACE_MARK, " ").encode("utf-8")


def _from_sentencepiece_with_bytes(token: str) -> bytes:
    match = _BYTE_TOKEN.fullmatch(token)
    return bytes([int(match[1], 16)]) if match else _from_sentencepiece(token)
