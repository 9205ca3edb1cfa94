"""Finds and reads what makes up a model's tokenizer: in a Hugging Face folder or inside a GGUF file.

Owns file names and the precedence among them. What the content means belongs to the tokenizer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer as HFTokenizer

from baton_engine.errors import ModelLoadError
from baton_engine.text.gguf_tokenizer import build_tokenizer, tokenizer_config
from baton_engine.weights.gguf_config import hf_generation_defaults
from baton_engine.weights.gguf_header import read_header

_ROLES: Final = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True)
class TokenizerFiles:
    """The parts of a tokenizer. `special_tokens`: role → text; `chat_templates`: name → Jinja source."""

    tokenizer: HFTokenizer
    special_tokens: dict[str, str]
    chat_templates: dict[str, str]
    stated_eos_ids: frozenset[int]

    def fingerprint(self) -> str:
        """Of all that decides which ids a text or a chat becomes."""
        names = json.dumps([self.special_tokens, self.chat_templates], sort_keys=True)
        return hashlib.sha256(f"{self.tokenizer.to_str()}{names}".encode()).hexdigest()


def read_tokenizer_files(path: Path) -> TokenizerFiles:
    """Read a model folder or a .gguf file. Raises ModelLoadError with the file that is missing or wrong."""
    if path.is_dir():
        return _from_folder(path)
    if path.suffix == ".gguf":
        return _from_gguf(path)
    raise ModelLoadError(f"{path}: neither a model folder nor a .gguf file")


def _from_gguf(path: Path) -> TokenizerFiles:
    metadata = read_header(path).metadata
    config = tokenizer_config(metadata)
    return TokenizerFiles(
        build_tokenizer(metadata),
        _special_tokens(config),
        _named_templates(config.get("chat_template"), path),
        _ids(hf_generation_defaults(metadata).get("eos_token_id")),
    )


def _from_folder(folder: Path) -> TokenizerFiles:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelLoadError(f"{file} is missing (slow tokenizers are not supported)")
    try:
        tokenizer = HFTokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for every parse failure
        raise ModelLoadError(f"{file} can't be loaded: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    config = _optional_json(folder / "tokenizer_config.json")
    older = _optional_json(folder / "special_tokens_map.json")
    special_tokens = _special_tokens(older) | _special_tokens(config)
    return TokenizerFiles(tokenizer, special_tokens, _folder_templates(folder, config), _stated_eos(folder))


def _folder_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """`chat_template.jinja` wins over tokenizer_config.json; more variants lie in a folder of their own."""
    templates = _named_templates(config.get("chat_template"), folder / "tokenizer_config.json")
    file = folder / "chat_template.jinja"
    if file.is_file():
        templates["default"] = _read(file)
    for extra in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[extra.stem] = _read(extra)
    return templates


def _named_templates(value: Any, where: Path) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    try:
        return {str(entry["name"]): str(entry["template"]) for entry in value}
    except (TypeError, KeyError) as error:
        raise ModelLoadError(
            f"{where}: chat_template must be a string or a list of named templates"
        ) from error


def _stated_eos(folder: Path) -> frozenset[int]:
    """generation_config.json decides; config.json only where it says nothing."""
    for name in ("generation_config.json", "config.json"):
        ids = _ids(_optional_json(folder / name).get("eos_token_id"))
        if ids:
            return ids
    return frozenset()


def _ids(value: Any) -> frozenset[int]:
    values = value if isinstance(value, list) else [value]
    return frozenset(item for item in values if isinstance(item, int))


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """A role's value is its text, or an object with the text as `content`."""
    found: dict[str, str] = {}
    for role in _ROLES:
        value = config.get(role)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            found[role] = text
    return found


def _optional_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(_read(path))
    except ValueError as error:
        raise ModelLoadError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelLoadError(f"{path} must hold a JSON object")
    return value


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelLoadError(f"{path} can't be read: {error}") from error
