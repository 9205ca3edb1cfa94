"""What the native kernels can serve. Owns the list of what they know about a model."""

from __future__ import annotations

import platform

import torch

from baton_engine.models.spec import DecoderSpec

# The kernels compute what these fields say. A spec with another field means something they don't know of:
# a test holds this list against DecoderSpec, so that a new field is decided on, not overlooked.
KNOWN_FIELDS = frozenset({
    "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "max_positions", "rms_norm_eps", "rope", "tie_word_embeddings", "qkv_bias", "output_bias", "mlp_bias",
    "qk_norm", "windows",
})  # fmt: skip
KV_DTYPES = frozenset({torch.bfloat16, torch.int8})
PAGE_TOKENS = 16
HEAD_UNIT = 32
LARGEST_HEAD = 512


def why_not_native(
    spec: DecoderSpec, dtype: torch.dtype, device: torch.device, block_size: int, kv_dtype: torch.dtype
) -> str | None:
    """A sentence, or None if the kernels can serve it."""
    if device.type != "cpu" or platform.machine().lower() not in {"x86_64", "amd64"}:
        return f"they are for x86-64 CPUs, the device is {device} on {platform.machine()}."
    if dtype != torch.bfloat16:
        return f"they compute in bfloat16, the dtype is {str(dtype).removeprefix('torch.')}."
    if kv_dtype not in KV_DTYPES:
        return f"they keep KV in bfloat16 or int8, kv_dtype is {str(kv_dtype).removeprefix('torch.')}."
    if block_size % PAGE_TOKENS:
        return f"block_size {block_size} is not a multiple of {PAGE_TOKENS}."
    if spec.head_dim % HEAD_UNIT or spec.head_dim > LARGEST_HEAD:
        return f"a head of {spec.head_dim} is not a multiple of {HEAD_UNIT} up to {LARGEST_HEAD}."
    return None
