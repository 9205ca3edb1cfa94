"""What makes one decoder differ from another, as values. Owns the reading of config.json's common keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeGuard, cast

from baton_engine.errors import ModelLoadError
from baton_engine.layers.rotary import RopeSpec

MOST_LAYERS: Final = 4096
MOST: Final = 2**31 - 1
"""Beyond any model; what is larger would keep us counting, or not fit a tensor's shape."""


@dataclass(frozen=True)
class DecoderSpec:
    """A pre-norm decoder with rotary positions, grouped-query attention and a gated MLP.

    qk_norm: each head of q and k is normed before the rotation. windows: how many tokens, itself included, a
    token sees in each layer; None is all. Empty: all in all layers.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rms_norm_eps: float
    rope: RopeSpec
    tie_word_embeddings: bool
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int | None, ...] = ()

    def window_of(self, layer: int) -> int | None:
        return self.windows[layer] if self.windows else None


def common_spec(config: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that all families share. Raises ModelLoadError naming what is missing or not served here."""
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelLoadError(f"config.json asks for hidden_act {activation!r}; this engine has silu.")
    num_heads = _integer(config, "num_attention_heads")
    num_kv_heads = _integer(config, "num_key_value_heads", default=num_heads)
    if num_heads % num_kv_heads:
        raise ModelLoadError(
            f"config.json: {num_heads} attention heads can't share {num_kv_heads} KV heads evenly."
        )
    hidden_size = _integer(config, "hidden_size")
    head_dim = _integer(config, "head_dim", default=hidden_size // num_heads)
    if head_dim % 2:
        raise ModelLoadError(f"config.json has heads of {head_dim} dimensions; rotary positions need pairs.")
    rope = _rope(config, head_dim, _integer(config, "max_position_embeddings"))
    return {
        "vocab_size": _integer(config, "vocab_size"),
        "hidden_size": hidden_size,
        "intermediate_size": _integer(config, "intermediate_size"),
        "num_layers": _num_layers(config),
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "max_positions": rope.max_positions,
        "rms_norm_eps": _number(config, "rms_norm_eps", 1e-6),
        "rope": rope,
        "tie_word_embeddings": bool(config.get("tie_word_embeddings", False)),
    }


FULL, SLIDING = "full_attention", "sliding_attention"


def window_everywhere(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Mistral's key: sliding_window is the window of all layers, null of none. layer_types may only repeat
    it: what the makers' own code would do with another one is not known here.
    """
    num_layers = _num_layers(config)
    window = _integer(config, "sliding_window") if config.get("sliding_window") is not None else None
    kind = FULL if window is None else SLIDING
    if set(_layer_kinds(config, [kind] * num_layers)) != {kind}:
        raise ModelLoadError(
            f"config.json has sliding_window = {window} and layer_types that say otherwise; in this model "
            "family all layers are of one kind."
        )
    return (window,) * num_layers if window else ()


def sliding_windows(config: Mapping[str, Any]) -> tuple[int | None, ...]:
    """Qwen's keys: use_sliding_window turns it on, layer_types or max_window_layers say for which layers."""
    num_layers = _num_layers(config)
    if not config.get("use_sliding_window"):
        if SLIDING in _layer_kinds(config, [FULL] * num_layers):
            raise ModelLoadError(
                f"config.json has {SLIDING} among its layer_types, but use_sliding_window is off."
            )
        return ()
    window = _integer(config, "sliding_window")
    first = config.get("max_window_layers", 28)
    if not _is_integer(first) or first < 0:
        raise ModelLoadError(
            f"config.json has max_window_layers = {first!r:.40}; a whole number from 0 on is needed."
        )
    by_number = [SLIDING if layer >= first else FULL for layer in range(num_layers)]
    kinds = _layer_kinds(config, by_number)
    return tuple(window if kind == SLIDING else None for kind in kinds)


def _layer_kinds(config: Mapping[str, Any], default: list[str]) -> list[str]:
    """layer_types, or `default` where there is none."""
    given = config.get("layer_types")
    if given is None:
        return default
    kinds = cast("list[Any]", given) if isinstance(given, list) else []
    if len(kinds) != len(default) or not all(kind in (FULL, SLIDING) for kind in kinds):
        raise ModelLoadError(
            f"config.json has layer_types {given!r:.200} for {len(default)} layers; this engine has {FULL} "
            f"and {SLIDING}, one for each layer."
        )
    return kinds


def _num_layers(config: Mapping[str, Any]) -> int:
    return _integer(config, "num_hidden_layers", most=MOST_LAYERS)


def _rope(config: Mapping[str, Any], head_dim: int, max_positions: int) -> RopeSpec:
    """Older files have rope_theta and rope_scaling, newer ones both inside rope_parameters."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise ModelLoadError(f"config.json has {given!r:.40} as RoPE parameters; an object is needed.")
    parameters = dict(given)
    rotated = parameters.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1
    if rotated != 1:
        raise ModelLoadError(
            f"config.json has partial_rotary_factor = {rotated}; this engine rotates whole heads only."
        )
    theta = _number(parameters, "rope_theta", 0.0) or _number(config, "rope_theta", 0.0) or 10_000.0
    rope = RopeSpec(head_dim, theta, max_positions, parameters or None)
    if rope.kind != "yarn":
        return rope
    original = _integer(parameters, "original_max_position_embeddings", default=max_positions)
    factor = _number(parameters, "factor", 0.0) or max_positions / original
    scaling = parameters | {"original_max_position_embeddings": original, "factor": factor}
    return replace(rope, max_positions=max(max_positions, int(original * factor)), scaling=scaling)


def _integer(config: Mapping[str, Any], key: str, *, default: int | None = None, most: int = MOST) -> int:
    """From 1 on. What is missing, null or 0 is `default`, where there is one."""
    value = config.get(key)
    if default is not None and not value:
        value = default
    if not _is_integer(value) or not 0 < value <= most:
        raise ModelLoadError(
            f"config.json has {key} = {value!r:.40}; a whole number from 1 to {most} is needed."
        )
    return value


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(config: Mapping[str, Any], key: str, default: float) -> float:
    value = config.get(key)
    if value is None:
        return default
    if not isinstance(value, int | float) or not 0 <= value <= MOST:
        raise ModelLoadError(f"config.json has {key} = {value!r:.40}; a number from 0 to {MOST} is needed.")
    return float(value)
