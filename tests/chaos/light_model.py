"""A model store in which the small model is two random layers under its own name and with its own tokenizer:
what is tried is the relay, and ten thousand answers need not wait for thirty layers each."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from baton_engine.config import DTYPES
from baton_engine.weights.safetensors_writer import SINGLE_FILE, write_shard
from tests.support.tiny_model import TinyCheckpoint
from tests.support.whole_system import pulled_models
from tests.system.live_system import SMALL

SHAPE = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "head_dim": 64,
}


def write_light_model(store: Path) -> None:
    """Manifest, tokenizer and defaults are the pulled model's: `baton up` takes it for that."""
    pulled, light = pulled_models() / SMALL, store / SMALL
    shutil.copytree(pulled, light, ignore=shutil.ignore_patterns(SINGLE_FILE))
    config = json.loads((pulled / "config.json").read_text()) | SHAPE
    (light / "config.json").write_text(json.dumps(config))
    weights = TinyCheckpoint(config=config)
    write_shard(light / SINGLE_FILE, dict(weights.shapes()), DTYPES["bfloat16"], weights.tensors())
