"""A byte-level vocabulary of some 270 tokens, as GGUF metadata and as a folder; and ids of given bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from baton_engine.text import Tokenizer
from baton_engine.text.gguf_tokenizer import build_tokenizer, tokenizer_config

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CONTENT_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")


def byte_letters() -> list[str]:
    """GPT-2's stand-in for each byte 0 to 255, in byte order; written from the rule, not from our code."""
    letters: list[str] = []
    for byte in range(256):
        visible = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255
        letters.append(chr(byte) if visible else "")
    stand_ins = iter(range(256, 512))
    return [letter or chr(next(stand_ins)) for letter in letters]


def bpe_letters(text: str) -> str:
    """`text` as it is spelled in a byte-level vocabulary: " é" → "ĠÃ©"."""
    letters = byte_letters()
    return "".join(letters[byte] for byte in text.encode())


def vocabulary_metadata(
    pre: str = "gpt-2",
    merges: Sequence[tuple[str, str]] = (),
    chat_template: str | None = CHATML,
    control: Sequence[str] = CONTROL_TOKENS,
    content: Sequence[str] = CONTENT_TOKENS,
    num_unused: int = 2,
    **extra: Any,
) -> dict[str, Any]:
    """GGUF metadata: 256 bytes, one token a merge (given as plain text), the special tokens, and padding."""
    pairs = [(bpe_letters(left), bpe_letters(right)) for left, right in merges]
    ordinary = [*byte_letters(), *(left + right for left, right in pairs)]
    unused = [f"[PAD{place}]" for place in range(num_unused)]
    tokens = [*ordinary, *control, *content, *unused]
    kinds = [NORMAL] * len(ordinary) + [CONTROL] * len(control) + [USER_DEFINED] * len(content)
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "llama.context_length": 256,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds + [UNUSED] * num_unused,
        "tokenizer.ggml.merges": [f"{left} {right}" for left, right in pairs],
    }
    if "<|im_end|>" in control:
        metadata["tokenizer.ggml.eos_token_id"] = tokens.index("<|im_end|>")
        metadata["tokenizer.ggml.bos_token_id"] = tokens.index("<|endoftext|>")
    if chat_template is not None:
        metadata["tokenizer.chat_template"] = chat_template
    return metadata | extra


def write_tokenizer_folder(folder: Path, metadata: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    build_tokenizer(metadata).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(metadata)))
    return folder


def tiny_tokenizer(folder: Path, **options: Any) -> Tokenizer:
    return Tokenizer.load(write_tokenizer_folder(folder, vocabulary_metadata(**options)))


@dataclass
class BytePieces:
    """Stands in for a tokenizer: each id is the place of its bytes in `pieces`."""

    pieces: list[bytes]
    special_token_ids: frozenset[int] = frozenset()
    eos_token_ids: frozenset[int] = frozenset()
    strips_first_space: bool = False
    ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = list(range(len(self.pieces)))

    def token_bytes(self, token_id: int) -> bytes:
        return self.pieces[token_id]
