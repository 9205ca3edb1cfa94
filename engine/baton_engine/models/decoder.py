"""The decoder forward pass over a flat batch of tokens. Knows no requests, no pages and no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from baton_engine.layers.attention import AttentionBackend, PlanT
from baton_engine.layers.linear import Linear, Weight, embed
from baton_engine.layers.mlp import GatedMLP
from baton_engine.layers.norm import HeadNorm, RMSNorm
from baton_engine.layers.rotary import RotaryTable
from baton_engine.models.spec import DecoderSpec


@dataclass(frozen=True)
class DecoderLayer:
    input_norm: RMSNorm
    qkv: Linear
    output: Linear
    mlp_norm: RMSNorm
    mlp: GatedMLP
    qk_norm: HeadNorm | None = None


class DecoderModel:
    def __init__(
        self,
        spec: DecoderSpec,
        embedding: Weight,
        layers: Sequence[DecoderLayer],
        norm: RMSNorm,
        head: Linear,
        rotary: RotaryTable,
    ) -> None:
        self.spec = spec
        self.embedding = embedding
        self.layers = layers
        self.norm = norm
        self.head = head
        self.rotary = rotary

    def forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        sample_rows: Tensor,
        *,
        attention: AttentionBackend[PlanT],
        plan: PlanT,
    ) -> Tensor:
        """token_ids, positions (tokens,) → float32 logits (len(sample_rows), vocabulary) of those rows."""
        spec = self.spec
        cos_sin = self.rotary.at(positions)
        num_rotated = spec.num_heads + spec.num_kv_heads
        hidden = embed(token_ids, self.embedding, self.norm.weight.dtype)
        for index, layer in enumerate(self.layers):
            heads = layer.qkv(layer.input_norm(hidden)).view(hidden.shape[0], -1, spec.head_dim)
            qk = heads[:, :num_rotated]
            rotated = self.rotary.rotate(qk if layer.qk_norm is None else layer.qk_norm(qk), cos_sin)
            q, k = rotated.split((spec.num_heads, spec.num_kv_heads), dim=1)
            attended = attention.attend(index, q, k, heads[:, num_rotated:], plan, spec.window_of(index))
            hidden = layer.output(attended, hidden)
            hidden = layer.mlp(layer.mlp_norm(hidden), hidden)
        return self.head(self.norm(hidden[sample_rows])).float()
