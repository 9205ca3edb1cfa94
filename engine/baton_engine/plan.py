"""python -m baton_engine.plan MODEL: the bill of a model before it is loaded. MODEL may be a lone
config.json."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from baton_engine.config import EngineConfig
from baton_engine.errors import ConfigError, EngineError, ModelLoadError
from baton_engine.layers.attention import KVShape
from baton_engine.memory import available_bytes
from baton_engine.memory_plan import plan_memory, planned_weights
from baton_engine.models import read_spec
from baton_engine.models.registry import WeightSource
from baton_engine.weights import open_checkpoint

import torch  # isort: skip  (baton_engine comes first)


MOST_GIB = 2**20
"""A pebibyte: beyond any device."""


class LoneConfig:
    """A config.json without weights."""

    def __init__(self, file: Path) -> None:
        try:
            config: object = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelLoadError(f"{file} can't be read as JSON: {error}") from error
        if not isinstance(config, dict):
            raise ModelLoadError(f"{file} holds no JSON object.")
        self.config = cast("dict[str, Any]", config)

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        raise ModelLoadError("there are no weights beside this config.json")


def main() -> int:
    options = _parser().parse_args()
    try:
        _print_bill(options)
    except EngineError as error:
        sys.stderr.write(f"baton_engine.plan: {error}\n")
        return 1
    return 0


def _print_bill(options: argparse.Namespace) -> None:
    source: WeightSource
    source = LoneConfig(options.model) if options.model.suffix == ".json" else open_checkpoint(options.model)
    config = EngineConfig(model=options.model, quantization=options.quantization, kv_dtype=options.kv_dtype)
    spec, dtype = read_spec(source), torch.bfloat16
    sizes = (spec.num_layers, spec.num_kv_heads, spec.head_dim, config.block_size)
    shape = KVShape(*sizes, dtype, config.resolve_kv_dtype(dtype))
    free = available_bytes() if options.memory_gib is None else _device_bytes(options.memory_gib)
    if options.chat_tokens < 1:
        raise ConfigError(f"--chat-tokens is {options.chat_tokens}; it must be 1 or more.")
    weights = planned_weights(config, source, dtype, torch.device("cpu"), native=True)
    plan = plan_memory(config, spec, shape, weights, free, share_kv=options.memory_gib is None)
    chats = f"chats of {options.chat_tokens:,} tokens at once: {plan.chats(options.chat_tokens):,}"
    sys.stdout.write(f"{plan.bill()}\n{chats}\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m baton_engine.plan", description=__doc__)
    parser.add_argument("model", type=Path, help="a model folder, a .gguf file or a config.json")
    parser.add_argument("--quantization", help="int8 or int4; nothing: bfloat16, or as a GGUF has it")
    parser.add_argument("--kv-dtype", default="auto", help="bfloat16, float32 or int8; nothing: the model's")
    parser.add_argument("--memory-gib", type=float, help="of a device of its own; nothing: what is free here")
    parser.add_argument("--chat-tokens", type=int, default=4096)
    return parser


def _device_bytes(memory_gib: float) -> int:
    if not 0 < memory_gib <= MOST_GIB:
        raise ConfigError(f"--memory-gib is {memory_gib}; it must be a number over 0, up to {MOST_GIB:,}.")
    return int(memory_gib * 2**30)


if __name__ == "__main__":
    sys.exit(main())
