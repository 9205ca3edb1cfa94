"""From named tensors to a decoder. Owns the HF names and the fusing of matrices; knows no file format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from baton_engine.errors import ModelLoadError
from baton_engine.layers.linear import Linear, Weight
from baton_engine.layers.mlp import GatedMLP
from baton_engine.layers.norm import HeadNorm, RMSNorm
from baton_engine.layers.quantized import QuantizedWeight, join, quantize
from baton_engine.layers.rotary import RotaryTable
from baton_engine.models.decoder import DecoderLayer, DecoderModel
from baton_engine.models.spec import DecoderSpec

# Old files carry tables that we compute; a tied head may be stored a second time.
IGNORED_ENDINGS = ("rotary_emb.inv_freq", "attn.masked_bias", "attn.bias")
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
TABLES = (EMBEDDING, HEAD)
ATTENTION = ".self_attn."
MATRIX_ENDINGS = ("_proj.weight", *TABLES)


@dataclass(frozen=True)
class Placement:
    """How weights are kept. bits: 8 or 4 quantises matrices that come in more (`kept_bits`). pack: plain
    matrices go into the device's own order (see Linear)."""

    dtype: torch.dtype
    device: torch.device
    pack: bool = True
    bits: int | None = None

    def place(self, name: str, weight: Weight) -> Weight:
        if self.bits is not None and name.endswith(MATRIX_ENDINGS):
            weight = _narrowed(weight, kept_bits(name, self.bits))
        if isinstance(weight, QuantizedWeight):
            return weight.to(self.device)
        return weight.to(device=self.device, dtype=self.dtype)


def kept_bits(name: str, bits: int) -> int:
    """Width of a matrix where `bits` are asked for. Attention's matrices, the head and the embedding never go
    under 8: the first are small and cost half of what int4 loses (performance log)."""
    return 8 if name in TABLES or ATTENTION in name else bits


def _narrowed(weight: Weight, bits: int) -> QuantizedWeight:
    if not isinstance(weight, QuantizedWeight):
        return quantize(weight, bits)
    return weight if weight.bits <= bits else quantize(weight.floats(), bits)


class NamedTensors:
    """The checkpoint's tensors by name, taken out one by one: no weight is held twice for long."""

    def __init__(self, tensors: Iterable[tuple[str, Weight]], placement: Placement) -> None:
        self.placement = placement
        self._tensors = {
            name: placement.place(name, tensor)
            for name, tensor in tensors
            if not name.endswith(IGNORED_ENDINGS)
        }

    def take_weight(self, name: str, *shape: int) -> Weight:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelLoadError(
                f"The checkpoint has no tensor {name}; config.json and weights don't belong together."
            )
        if tuple(tensor.shape) != shape:
            raise ModelLoadError(
                f"Tensor {name} has shape {tuple(tensor.shape)}; config.json asks for {shape}."
            )
        return tensor

    def take(self, name: str, *shape: int) -> Tensor:
        """One that must be plain: a vector."""
        return self._plain(self.take_weight(name, *shape)).contiguous()

    def _plain(self, weight: Weight) -> Tensor:
        return weight.floats(self.placement.dtype) if isinstance(weight, QuantizedWeight) else weight

    def _joined(self, weights: list[Weight]) -> Weight:
        quantized = [weight for weight in weights if isinstance(weight, QuantizedWeight)]
        if len(quantized) == len(weights):
            return join(quantized)
        return torch.cat([self._plain(weight) for weight in weights])

    def discard(self, name: str) -> None:
        self._tensors.pop(name, None)

    def linear(self, names: tuple[str, ...], outs: tuple[int, ...], size_in: int, bias: bool) -> Linear:
        """Several matrices over the same input become one, their outputs behind one another."""
        weights = [
            self.take_weight(f"{name}.weight", out, size_in) for name, out in zip(names, outs, strict=True)
        ]
        biases = (
            [self.take(f"{name}.bias", out) for name, out in zip(names, outs, strict=True)] if bias else []
        )
        return self.to_linear(self._joined(weights), torch.cat(biases) if bias else None)

    def to_linear(self, weight: Weight, bias: Tensor | None = None) -> Linear:
        return Linear(weight, bias, self.placement.pack)

    def head_norm(self, prefix: str, spec: DecoderSpec) -> HeadNorm | None:
        if not spec.qk_norm:
            return None
        q, k = (self.take(f"{prefix}.{name}_norm.weight", spec.head_dim) for name in ("q", "k"))
        return HeadNorm(q, k, spec.num_heads, spec.num_kv_heads, spec.rms_norm_eps)

    def check_empty(self) -> None:
        if self._tensors:
            names = sorted(self._tensors)
            raise ModelLoadError(
                f"The checkpoint has {len(names)} tensors that this model family does not use, for example "
                f"{names[0]}: running without them would give wrong answers."
            )


def load_decoder(
    spec: DecoderSpec, tensors: Iterable[tuple[str, Weight]], placement: Placement
) -> DecoderModel:
    named = NamedTensors(tensors, placement)
    embedding = named.take_weight(EMBEDDING, spec.vocab_size, spec.hidden_size)
    if spec.tie_word_embeddings:
        named.discard(HEAD)
        head = named.to_linear(embedding)
    else:
        head = named.linear(("lm_head",), (spec.vocab_size,), spec.hidden_size, bias=False)
    norm = RMSNorm(named.take("model.norm.weight", spec.hidden_size), spec.rms_norm_eps)
    layers = [_load_layer(spec, named, f"model.layers.{index}") for index in range(spec.num_layers)]
    named.check_empty()
    return DecoderModel(
        spec, embedding, layers, norm, head, RotaryTable(spec.rope, placement.dtype, placement.device)
    )


def _load_layer(spec: DecoderSpec, named: NamedTensors, prefix: str) -> DecoderLayer:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    q_size, kv_size = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    attention, mlp = f"{prefix}.self_attn", f"{prefix}.mlp"
    qkv_names = (f"{attention}.q_proj", f"{attention}.k_proj", f"{attention}.v_proj")
    gate_up_names = (f"{mlp}.gate_proj", f"{mlp}.up_proj")
    return DecoderLayer(
        input_norm=RMSNorm(named.take(f"{prefix}.input_layernorm.weight", hidden), spec.rms_norm_eps),
        qkv=named.linear(qkv_names, (q_size, kv_size, kv_size), hidden, spec.qkv_bias),
        output=named.linear((f"{attention}.o_proj",), (hidden,), q_size, spec.output_bias),
        mlp_norm=RMSNorm(named.take(f"{prefix}.post_attention_layernorm.weight", hidden), spec.rms_norm_eps),
        mlp=GatedMLP(
            gate_up=named.linear(gate_up_names, (inner, inner), hidden, spec.mlp_bias),
            down=named.linear((f"{mlp}.down_proj",), (hidden,), inner, spec.mlp_bias),
        ),
        qk_norm=named.head_norm(attention, spec),
    )
