"""From named tensors to a decoder. Owns the HF names and the fusing of matrices; knows no file format."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from baton_engine.errors import ModelLoadError
from baton_engine.layers.linear import Linear
from baton_engine.layers.mlp import GatedMLP
from baton_engine.layers.norm import HeadNorm, RMSNorm
from baton_engine.layers.rotary import RotaryTable
from baton_engine.models.decoder import DecoderLayer, DecoderModel
from baton_engine.models.spec import DecoderSpec

# Old files carry tables that we compute; a tied head may be stored a second time.
IGNORED_ENDINGS = ("rotary_emb.inv_freq", "attn.masked_bias", "attn.bias")


class NamedTensors:
    """The checkpoint's tensors by name, taken out one by one: no weight is held twice for long."""

    def __init__(
        self, tensors: Iterable[tuple[str, Tensor]], dtype: torch.dtype, device: torch.device, pack: bool
    ) -> None:
        self.pack = pack
        self._tensors = {
            name: tensor.to(device=device, dtype=dtype)
            for name, tensor in tensors
            if not name.endswith(IGNORED_ENDINGS)
        }

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ModelLoadError(
                f"The checkpoint has no tensor {name}; config.json and weights don't belong together."
            )
        if tuple(tensor.shape) != shape:
            raise ModelLoadError(
                f"Tensor {name} has shape {tuple(tensor.shape)}; config.json asks for {shape}."
            )
        return tensor.contiguous()

    def discard(self, name: str) -> None:
        self._tensors.pop(name, None)

    def linear(self, names: tuple[str, ...], outs: tuple[int, ...], size_in: int, bias: bool) -> Linear:
        """Several matrices over the same input become one, their outputs behind one another."""
        weights = [self.take(f"{name}.weight", out, size_in) for name, out in zip(names, outs, strict=True)]
        biases = (
            [self.take(f"{name}.bias", out) for name, out in zip(names, outs, strict=True)] if bias else []
        )
        return Linear(torch.cat(weights), torch.cat(biases) if bias else None, self.pack)

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
    spec: DecoderSpec,
    tensors: Iterable[tuple[str, Tensor]],
    dtype: torch.dtype,
    device: torch.device,
    pack: bool = True,
) -> DecoderModel:
    """pack=False: weights stay in plain order (see Linear)."""
    named = NamedTensors(tensors, dtype, device, pack)
    embedding = named.take("model.embed_tokens.weight", spec.vocab_size, spec.hidden_size)
    if spec.tie_word_embeddings:
        named.discard("lm_head.weight")
        head = Linear(embedding, pack=pack)
    else:
        head = named.linear(("lm_head",), (spec.vocab_size,), spec.hidden_size, bias=False)
    norm = RMSNorm(named.take("model.norm.weight", spec.hidden_size), spec.rms_norm_eps)
    layers = [_load_layer(spec, named, f"model.layers.{index}") for index in range(spec.num_layers)]
    named.check_empty()
    return DecoderModel(spec, embedding, layers, norm, head, RotaryTable(spec.rope, dtype, device))


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
