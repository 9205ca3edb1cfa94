"""A tiny random decoder, a byte tokenizer and a byte decoder: engine tests without weights, in milliseconds.

Ids 0 to 255 are bytes, 256 begins and 257 ends; the ids above have no text, but have logits.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from baton_engine import EngineConfig, SamplingParams
from baton_engine.assembly import LoadedEngine, ModelParts, load_engine

BOS, EOS = 256, 257
VOCAB_SIZE = 264

TINY_CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


@dataclass
class TinyCheckpoint:
    """Random weights of a fixed seed, under the names that Hugging Face gives them."""

    config: dict[str, Any] = field(default_factory=lambda: dict(TINY_CONFIG))
    generation_defaults: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        generator = torch.Generator().manual_seed(self.seed)
        for name, shape in self.shapes():
            if name.endswith("norm.weight"):
                yield name, 1 + 0.1 * torch.randn(shape, generator=generator)
            else:
                yield name, 0.15 * torch.randn(shape, generator=generator)

    def tensor_names(self) -> set[str]:
        return {name for name, _ in self.shapes()}

    def shapes(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        config = self.config
        hidden, inner = config["hidden_size"], config["intermediate_size"]
        default_head_dim = 128 if config["model_type"] == "qwen3" else hidden // config["num_attention_heads"]
        head_dim = config.get("head_dim") or default_head_dim
        q_size, kv_size = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
        yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
        for index in range(config["num_hidden_layers"]):
            prefix = f"model.layers.{index}"
            yield f"{prefix}.input_layernorm.weight", (hidden,)
            yield f"{prefix}.post_attention_layernorm.weight", (hidden,)
            for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
                yield f"{prefix}.self_attn.{name}_proj.weight", (size, hidden)
                if config["model_type"] == "qwen2" or config.get("attention_bias"):
                    yield f"{prefix}.self_attn.{name}_proj.bias", (size,)
            yield f"{prefix}.self_attn.o_proj.weight", (hidden, q_size)
            if config.get("attention_bias"):
                yield f"{prefix}.self_attn.o_proj.bias", (hidden,)
            if config["model_type"] == "qwen3":
                yield f"{prefix}.self_attn.q_norm.weight", (head_dim,)
                yield f"{prefix}.self_attn.k_norm.weight", (head_dim,)
            yield f"{prefix}.mlp.gate_proj.weight", (inner, hidden)
            yield f"{prefix}.mlp.up_proj.weight", (inner, hidden)
            yield f"{prefix}.mlp.down_proj.weight", (hidden, inner)
            if config.get("mlp_bias"):
                for name, size in (("gate", inner), ("up", inner), ("down", hidden)):
                    yield f"{prefix}.mlp.{name}_proj.bias", (size,)
        yield "model.norm.weight", (hidden,)
        if not config["tie_word_embeddings"]:
            yield "lm_head.weight", (config["vocab_size"], hidden)


class ByteTokenizer:
    vocab_size = VOCAB_SIZE
    bos_token_id = BOS
    eos_token_ids = frozenset({EOS})
    special_token_ids = frozenset({BOS, EOS})
    chat_template_source = "{{ messages }}"
    fingerprint = "bytes"

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def encode_raw(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        return [BOS] * add_special_tokens + self.encode(text)

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b""

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return bytes(token_id for token_id in ids if token_id < 256).decode(errors="replace")

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: Any,
    ) -> list[int]:
        if messages[0]["role"] == "assistant":
            raise ValueError("conversation must not begin with the assistant")
        text = "".join(f"{message['role']}: {message['content']}\n" for message in messages)
        return [BOS, *self.encode(text + ("assistant: " if add_generation_prompt else ""))]


@dataclass(frozen=True)
class ByteChunk:
    text: str
    stopped: bool = False
    stop: str | None = None


class ByteDecoder:
    """Bytes to text with half characters held back, and the plainest possible search for stop strings."""

    def __init__(self, prompt_token_ids: Sequence[int], sampling: SamplingParams) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = sampling.stop
        self._free_tokens = sampling.min_tokens
        self._held = ""

    def push(self, token_ids: Sequence[int]) -> ByteChunk:
        self._held += self._utf8.decode(bytes(token_id for token_id in token_ids if token_id < 256))
        self._free_tokens -= len(token_ids)
        if self._free_tokens >= 0:
            text, self._held = self._held, ""
            return ByteChunk(text)
        hits = [(self._held.index(stop), stop) for stop in self._stop if stop in self._held]
        if hits:
            at, stop = min(hits)
            text, self._held = self._held[:at], ""
            return ByteChunk(text, stopped=True, stop=stop)
        keep = max((len(stop) - 1 for stop in self._stop), default=0)
        keep = next(n for n in range(min(keep, len(self._held)), -1, -1) if n == 0 or self._may_begin(n))
        cut = len(self._held) - keep
        text, self._held = self._held[:cut], self._held[cut:]
        return ByteChunk(text)

    def finish(self) -> ByteChunk:
        text, self._held = self._held + self._utf8.decode(b"", final=True), ""
        return ByteChunk(text)

    def _may_begin(self, length: int) -> bool:
        return any(stop.startswith(self._held[-length:]) for stop in self._stop)


def tiny_parts(checkpoint: TinyCheckpoint | None = None) -> ModelParts:
    checkpoint = checkpoint or TinyCheckpoint()
    return ModelParts(checkpoint, ByteTokenizer(), ByteDecoder, checkpoint.generation_defaults)


def tiny_config(**changes: Any) -> EngineConfig:
    """Small enough for milliseconds: 64 blocks of 16, one thread, float32."""
    values: dict[str, Any] = {
        "model": "tiny",
        "dtype": "float32",
        "device": "cpu",
        "num_blocks": 64,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "num_threads": 1,
    }
    return EngineConfig(**(values | changes))


def tiny_engine(
    checkpoint: TinyCheckpoint | None = None, draft: TinyCheckpoint | None = None, **changes: Any
) -> LoadedEngine:
    """draft: the weights of the draft model, where the changes ask for one."""
    draft_parts = None if draft is None else tiny_parts(draft)
    return load_engine(tiny_config(**changes), tiny_parts(checkpoint), draft_parts=draft_parts)
