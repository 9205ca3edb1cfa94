"""Attention over paged KV for a GPU: prompts through torch's fused (flash) kernels, decodes as in the
reference.

The fused kernels never write the scores to memory. They take bfloat16 and float16, no sliding window, and K
and V in one piece: a chunk's pages are gathered first, once a layer. Whether they are used at all is decided
at the start, by a trial beside the reference on this very device: `why_not_fused`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from baton_engine.layers.attention import KVShape, Span
from baton_engine.layers.attention_torch import PrefillChunk, TorchAttention

FUSED_DTYPES = frozenset({torch.bfloat16, torch.float16})
TRIAL_CHUNKS = ((0, 40), (40, 73), (73, 200))  # places [start, end) of one sequence
TRIAL_LEAST_COSINE = 0.999


class SDPAAttention(TorchAttention):
    """An AttentionBackend; `fused` may be turned off, then it is TorchAttention."""

    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        super().__init__(shape, num_blocks, device)
        self.fused = shape.dtype in FUSED_DTYPES

    def _prefill(self, layer: int, q: Tensor, chunk: PrefillChunk, window: int | None) -> Tensor:
        if not self.fused or window is not None:
            return super()._prefill(layer, q, chunk, window)
        length, heads, dim = q.shape
        k, v = (
            gathered[None, :, : chunk.context + length] for gathered in self.kv.gather(layer, chunk.pages)
        )
        mask = causal_lower_right(length, chunk.context + length)
        attended = scaled_dot_product_attention(
            q.transpose(0, 1)[None], k, v, attn_mask=mask, scale=self.scale, enable_gqa=heads != k.shape[1]
        )
        return attended[0].transpose(0, 1).reshape(length, heads * dim)


def why_not_fused(shape: KVShape, num_heads: int, device: torch.device) -> str | None:
    """A sentence, or None where the fused kernels give what the reference gives: on random numbers, in
    chunks.
    """
    if shape.dtype not in FUSED_DTYPES:
        return f"they are not for {str(shape.dtype).removeprefix('torch.')}."
    trial = replace(shape, num_layers=1)
    num_blocks = -(-TRIAL_CHUNKS[-1][1] // shape.block_size)
    worst = 1.0
    try:
        pairs = zip(
            _trial_rows(SDPAAttention(trial, num_blocks, device), num_heads),
            _trial_rows(TorchAttention(trial, num_blocks, device), num_heads),
            strict=True,
        )
        for fused, plain in pairs:
            alike = torch.nn.functional.cosine_similarity(fused.float(), plain.float(), dim=-1)
            worst = min(worst, alike.min().item())
    except RuntimeError as error:
        return f"torch has none for this device: {error}"
    if not worst >= TRIAL_LEAST_COSINE:
        return f"their results are off here: the worst cosine to the reference is {worst:.4f}."
    return None


def _trial_rows(attention: TorchAttention, num_heads: int) -> Iterator[Tensor]:
    """Each chunk's (tokens, num_heads × head_dim); the same random numbers for every attention."""
    shape, device = attention.shape, attention.device
    generator = torch.Generator().manual_seed(0)
    blocks = range(-(-TRIAL_CHUNKS[-1][1] // shape.block_size))
    for start, end in TRIAL_CHUNKS:
        q, k, v = (
            torch.randn(end - start, heads, shape.head_dim, generator=generator).to(device, shape.dtype)
            for heads in (num_heads, shape.num_kv_heads, shape.num_kv_heads)
        )
        yield attention.attend(0, q, k, v, attention.plan([Span(start, end - start, blocks)]))
