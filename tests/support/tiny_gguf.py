"""Writes small GGUF files with the `gguf` package, so that our reader is tested against another's writer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.support.tiny_text import vocabulary_metadata

LAYERS, HIDDEN, HEADS, KV_HEADS, INNER = 2, 32, 4, 2, 64
HEAD_DIM = HIDDEN // HEADS


def model_metadata(architecture: str = "llama", **changes: Any) -> dict[str, Any]:
    own = {
        "general.architecture": architecture,
        f"{architecture}.block_count": LAYERS,
        f"{architecture}.context_length": 256,
        f"{architecture}.embedding_length": HIDDEN,
        f"{architecture}.feed_forward_length": INNER,
        f"{architecture}.attention.head_count": HEADS,
        f"{architecture}.attention.head_count_kv": KV_HEADS,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{architecture}.rope.freq_base": 50000.0,
    }
    metadata = vocabulary_metadata() | own | changes
    if architecture != "llama":
        del metadata["llama.context_length"]
    return metadata


def model_tensors(architecture: str = "llama", tied: bool = True) -> dict[str, np.ndarray[Any, Any]]:
    """Random float32 tensors under GGUF names, in GGUF's row order."""
    random = np.random.default_rng(0)
    vocabulary_size = len(vocabulary_metadata()["tokenizer.ggml.tokens"])
    kv = KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary_size, HIDDEN)}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        shapes |= {f"{block}.attn_norm.weight": (HIDDEN,), f"{block}.ffn_norm.weight": (HIDDEN,)}
        shapes |= {
            f"{block}.attn_q.weight": (HIDDEN, HIDDEN),
            f"{block}.attn_output.weight": (HIDDEN, HIDDEN),
        }
        shapes |= {f"{block}.attn_k.weight": (kv, HIDDEN), f"{block}.attn_v.weight": (kv, HIDDEN)}
        if architecture == "qwen2":
            shapes |= {
                f"{block}.attn_q.bias": (HIDDEN,),
                f"{block}.attn_k.bias": (kv,),
                f"{block}.attn_v.bias": (kv,),
            }
        shapes |= {f"{block}.ffn_gate.weight": (INNER, HIDDEN), f"{block}.ffn_up.weight": (INNER, HIDDEN)}
        shapes[f"{block}.ffn_down.weight"] = (HIDDEN, INNER)
    shapes["output_norm.weight"] = (HIDDEN,)
    if not tied:
        shapes["output.weight"] = (vocabulary_size, HIDDEN)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    metadata: dict[str, Any],
    tensors: dict[str, np.ndarray[Any, Any]],
    types: dict[str, gguf.GGMLQuantizationType] | None = None,
) -> Path:
    """`types`: tensors given as raw bytes, and what they are."""
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for key, value in metadata.items():
        if key != "general.architecture":
            _add(writer, key, value)
    for name, tensor in tensors.items():
        writer.add_tensor(name, tensor, raw_dtype=(types or {}).get(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tiny_gguf(path: Path, architecture: str = "llama", tied: bool = True, **changes: Any) -> Path:
    return write_gguf(path, model_metadata(architecture, **changes), model_tensors(architecture, tied))


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    adders = {
        bool: writer.add_bool,
        int: writer.add_uint32,
        float: writer.add_float32,
        str: writer.add_string,
    }
    adders.get(type(value), writer.add_array)(key, value)
