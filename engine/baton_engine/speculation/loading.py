"""Makes a drafter of its settings. Owns the check that a draft model has the model's vocabulary."""

from __future__ import annotations

from pathlib import Path

import torch

from baton_engine.backend import choose_backend
from baton_engine.config import QUANTIZATION_BITS, EngineConfig
from baton_engine.errors import ConfigError
from baton_engine.kv_cache import KVCache
from baton_engine.layers.attention import KVShape
from baton_engine.memory_plan import DraftCost, planned_weights, work_bytes
from baton_engine.models import build_model, read_spec
from baton_engine.models.decoder import DecoderModel
from baton_engine.models.registry import WeightSource
from baton_engine.speculation.draft_model import DraftModel
from baton_engine.speculation.drafting import Drafter
from baton_engine.speculation.ngram import NgramDrafter
from baton_engine.speculation.settings import NgramSpeculation, SpeculationSettings
from baton_engine.text_face import TextTokenizer

# Words, numbers, code, other scripts: vocabularies that agree on all of it are the same for our purpose.
PROBES = (
    "The quick brown fox jumps over the lazy dog.",
    " international understanding, nevertheless",
    "1234567890 3.14159",
    "def main(argv: list[str]) -> None:\n        return {'key': [0]}\n",
    "Größe naïve façade",
    "日本語のテキスト",
    "Привет мир",
    "👩‍👩‍👧 → ½",
)


class DraftLoader:
    """A draft model on its way: planned, then with weights, then with KV. It runs with the engine's dtype,
    backend, quantization and KV dtype."""

    def __init__(
        self, config: EngineConfig, source: WeightSource, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._config = config
        self._source = source
        self._device = device
        self._spec = spec = read_spec(source)
        sizes = (spec.num_layers, spec.num_kv_heads, spec.head_dim, config.block_size)
        self._shape = KVShape(*sizes, dtype, config.resolve_kv_dtype(dtype))
        self._backend = choose_backend(config, spec, dtype, device)
        self._model: DecoderModel | None = None

    @property
    def cost(self) -> DraftCost:
        native = self._backend.packs_weights
        weights = planned_weights(self._config, self._source, self._shape.dtype, self._device, native)
        fixed = weights.num_bytes + work_bytes(self._config, self._spec)
        return DraftCost(fixed, self._shape.bytes_per_block)

    def load_weights(self) -> None:
        self._model = build_model(
            self._source,
            self._shape.dtype,
            self._device,
            pack=not self._backend.packs_weights,
            bits=QUANTIZATION_BITS[self._config.quantization],
        )

    def with_kv(self, num_blocks: int, vocab_size: int) -> DraftModel:
        """A warm draft model, once. vocab_size is the width of the real model's logits."""
        assert self._model is not None, "the weights are loaded first"
        config, model = self._config, self._model
        self._model = None
        forward = self._backend.forward(model, self._shape, num_blocks)
        kv_cache = KVCache(num_blocks, config.block_size, config.enable_prefix_caching)
        draft = DraftModel(forward, kv_cache, config.max_num_batched_tokens, vocab_size)
        fitting = min(num_blocks * config.block_size, self._spec.max_positions) - 1
        draft.runner.warm_up(min(config.max_num_batched_tokens, fitting))
        return draft


def drafter_of(
    settings: SpeculationSettings, draft: DraftLoader | None, num_blocks: int, vocab_size: int
) -> Drafter:
    if isinstance(settings, NgramSpeculation):
        return NgramDrafter(settings.min_match, settings.max_match)
    assert draft is not None
    return draft.with_kv(num_blocks, vocab_size)


def require_same_vocabulary(model: Path, ours: TextTokenizer, drafts: TextTokenizer) -> None:
    """Raises ConfigError. Ids that mean something else would never be right, so nothing would be gained."""
    for probe in PROBES:
        spelled, theirs = ours.encode(probe), drafts.encode(probe)
        if spelled != theirs:
            raise ConfigError(
                f"speculation: the draft model {model} has another vocabulary than the model: it "
                f"spells {probe!r} as {theirs[:8]}, the model as {spelled[:8]}. Take one of its family."
            )
