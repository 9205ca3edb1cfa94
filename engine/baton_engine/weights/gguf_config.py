"""Translates GGUF metadata and tensor names into the Hugging Face vocabulary.

Owns the two mappings (metadata → config.json and generation_config.json keys; GGUF tensor name → HF
tensor name). Reads no files and touches no tensor data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from baton_engine.errors import ModelLoadError

# general.architecture → (HF model_type, HF architecture, QKV projections have biases)
_ARCHITECTURES: Final = {
    "llama": ("llama", "LlamaForCausalLM", False),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", True),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", False),
}

_TOP_LEVEL: Final = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_IN_LAYER: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_LAYER_NAME: Final = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")

# Rotary tables that the model code computes itself (rope_freqs is read by `rope_scaling`).
DERIVED_TENSORS: Final = frozenset({"rope_freqs.weight"})

# Control tokens that end an answer in one chat format or another; a GGUF names only one or two of them.
_END_TOKENS: Final = frozenset(
    {"<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>"}
)
_CONTROL: Final = 3

_LLAMA3_ORIGINAL_CONTEXT: Final = 8192


def hf_tensor_name(gguf_name: str) -> str:
    """`blk.0.attn_q.weight` → `model.layers.0.self_attn.q_proj.weight`. Raises ModelLoadError if unknown."""
    if gguf_name in _TOP_LEVEL:
        return _TOP_LEVEL[gguf_name]
    match = _LAYER_NAME.fullmatch(gguf_name)
    if match is None or match[2] not in _IN_LAYER:
        raise ModelLoadError(f"GGUF tensor {gguf_name!r} has no place in a supported model family")
    return f"model.layers.{match[1]}.{_IN_LAYER[match[2]]}.{match[3]}"


def hf_config(metadata: Mapping[str, Any], tensor_names: frozenset[str]) -> dict[str, Any]:
    """config.json of the model that `metadata` describes, without `rope_scaling` from tensors."""
    architecture = str(_need(metadata, "general.architecture"))
    if architecture not in _ARCHITECTURES:
        known = ", ".join(sorted(_ARCHITECTURES))
        raise ModelLoadError(f"GGUF architecture {architecture!r} is not supported (supported: {known})")
    model_type, class_name, qkv_bias = _ARCHITECTURES[architecture]

    def key(name: str) -> str:
        return f"{architecture}.{name}"

    if metadata.get(key("expert_count")):
        raise ModelLoadError(f"GGUF {architecture} with experts (expert_count > 0) is not supported")
    num_heads = int(_need(metadata, key("attention.head_count")))
    hidden_size = int(_need(metadata, key("embedding_length")))
    config: dict[str, Any] = {
        "architectures": [class_name],
        "model_type": model_type,
        "hidden_size": hidden_size,
        "intermediate_size": int(_need(metadata, key("feed_forward_length"))),
        "num_hidden_layers": int(_need(metadata, key("block_count"))),
        "num_attention_heads": num_heads,
        "num_key_value_heads": int(metadata.get(key("attention.head_count_kv"), num_heads)),
        "head_dim": int(metadata.get(key("attention.key_length"), hidden_size // num_heads)),
        "hidden_act": "silu",
        "max_position_embeddings": int(_need(metadata, key("context_length"))),
        "rms_norm_eps": _shortest_float32(_need(metadata, key("attention.layer_norm_rms_epsilon"))),
        "rope_theta": _shortest_float32(metadata.get(key("rope.freq_base"), 10000.0)),
        "rope_scaling": _metadata_rope_scaling(metadata, architecture),
        "tie_word_embeddings": "output.weight" not in tensor_names,
        "vocab_size": len(_need(metadata, "tokenizer.ggml.tokens")),
        "attention_bias": qkv_bias or "blk.0.attn_q.bias" in tensor_names,
        "mlp_bias": False,
        "use_cache": True,
        "torch_dtype": "bfloat16",
    }
    return config | _token_ids(metadata)


def hf_generation_defaults(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """generation_config.json: which ids end an answer, and the ids of the other roles."""
    ids = _token_ids(metadata)
    named = [metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("eos", "eot", "eom")]
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata.get("tokenizer.ggml.token_type")
    by_text = [
        token_id
        for token_id, kind in enumerate(kinds or ())
        if kind == _CONTROL and tokens[token_id] in _END_TOKENS
    ]
    ends = dict.fromkeys(int(i) for i in [*named, *by_text] if i is not None)
    if ends:
        ids["eos_token_id"] = list(ends)
    return ids


def rope_scaling_from_factors(
    factors: np.ndarray[Any, Any], config: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The `llama3` rope_scaling whose frequency divisors are `factors` (length head_dim / 2).

    GGUF stores the computed divisors instead of the parameters. They are recovered by the rule of
    Llama 3.1 (low_freq_factor 1, high_freq_factor 4 over an original context of 8192) and recomputed to
    prove it; anything else raises ModelLoadError, because a wrong scaling gives quietly wrong text.
    """
    factor = float(factors.max())
    if factor == 1.0:
        return None
    exponents = np.arange(0, 2 * len(factors), 2, dtype=np.float64) / (2 * len(factors))
    wavelengths = 2 * np.pi * float(config["rope_theta"]) ** exponents
    low, high = 1.0, 4.0
    smooth = (_LLAMA3_ORIGINAL_CONTEXT / wavelengths - low) / (high - low)
    middle = 1 / ((1 - smooth) / factor + smooth)
    expected = np.where(smooth < 0, factor, np.where(smooth > 1, 1.0, middle))
    if not np.allclose(expected, factors, rtol=1e-3):
        raise ModelLoadError("GGUF rope_freqs.weight is not Llama 3's RoPE scaling; no other is supported")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": _LLAMA3_ORIGINAL_CONTEXT,
    }


def _metadata_rope_scaling(metadata: Mapping[str, Any], architecture: str) -> dict[str, Any] | None:
    kind = metadata.get(f"{architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind not in ("linear", "yarn"):
        raise ModelLoadError(f"GGUF rope.scaling.type {kind!r} is not supported (none, linear, yarn are)")
    factor = _shortest_float32(_need(metadata, f"{architecture}.rope.scaling.factor"))
    scaling: dict[str, Any] = {"rope_type": kind, "factor": factor}
    original = metadata.get(f"{architecture}.rope.scaling.original_context_length")
    if original is not None:
        scaling["original_max_position_embeddings"] = int(original)
    return scaling


def _token_ids(metadata: Mapping[str, Any]) -> dict[str, Any]:
    names = {"bos_token_id": "bos", "eos_token_id": "eos", "pad_token_id": "padding"}
    found = {key: metadata.get(f"tokenizer.ggml.{name}_token_id") for key, name in names.items()}
    return {key: int(value) for key, value in found.items() if value is not None}


def _need(metadata: Mapping[str, Any], key: str) -> Any:
    if key not in metadata:
        raise ModelLoadError(f"GGUF metadata lacks the key {key!r}")
    return metadata[key]


def _shortest_float32(value: float) -> float:
    """1e-05 was stored as the float32 9.99999975e-06: give back the decimal that was meant."""
    return float(str(np.float32(value)))
