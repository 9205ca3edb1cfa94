"""Puts an engine together from a configuration. Owns the order of loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from baton_engine.admission import AdmissionLimits, WaitingRoom
from baton_engine.backend import choose_backend, chooser_of
from baton_engine.config import QUANTIZATION_BITS, EngineConfig
from baton_engine.device_memory import CudaMeter, LargestStep, fit_to_device, kv_pool_bytes
from baton_engine.engine import EngineCore
from baton_engine.heap import large_blocks_returned
from baton_engine.kv_cache import KVCache
from baton_engine.layers.attention import KVShape
from baton_engine.memory import available_bytes
from baton_engine.memory_plan import DraftCost, plan_memory, planned_weights
from baton_engine.models import build_model, read_spec
from baton_engine.models.registry import WeightSource
from baton_engine.models.spec import DecoderSpec
from baton_engine.queue_order import queue_order
from baton_engine.runner import Runner
from baton_engine.sampler import Sampler
from baton_engine.sampling_params import SamplingParams
from baton_engine.scheduler import Scheduler
from baton_engine.speculation.drafting import Speculation
from baton_engine.speculation.loading import DraftLoader, drafter_of, require_same_vocabulary
from baton_engine.speculation.settings import DraftSpeculation, SpeculationSettings
from baton_engine.step_pace import StepPace
from baton_engine.structured.compiler import GrammarCompiler
from baton_engine.text import StreamDecoder, Tokenizer
from baton_engine.text_face import TextDecoderFactory, TextTokenizer
from baton_engine.weights import open_checkpoint

WARM_UP_TOKENS = 512

Progress = Callable[[str], None]


@dataclass(frozen=True)
class ModelParts:
    """What a model folder gives: weights with config, a tokenizer, stream decoders, sampling defaults."""

    weights: WeightSource
    tokenizer: TextTokenizer
    new_decoder: TextDecoderFactory
    generation_defaults: dict[str, Any]


@dataclass(frozen=True)
class LoadedEngine:
    core: EngineCore
    tokenizer: TextTokenizer
    limits: AdmissionLimits
    grammars: GrammarCompiler
    generation_defaults: dict[str, Any]


def open_parts(config: EngineConfig) -> ModelParts:
    """Raises ModelLoadError."""
    checkpoint = open_checkpoint(config.model)
    tokenizer = Tokenizer.load(config.model)
    return ModelParts(checkpoint, tokenizer, decoders_of(tokenizer), checkpoint.generation_defaults)


def decoders_of(tokenizer: Tokenizer) -> TextDecoderFactory:
    """What of sampling concerns the text: stops, and which of them and of the control tokens are shown."""

    def new_decoder(prompt_token_ids: Sequence[int], sampling: SamplingParams) -> StreamDecoder:
        return StreamDecoder(
            tokenizer,
            prompt_token_ids,
            sampling.stop,
            skip_special_tokens=sampling.skip_special_tokens,
            include_stop=sampling.include_stop_str_in_output,
            min_tokens=sampling.min_tokens,
            # Inside a structure such text is data, and to end there would break it.
            stop_at_spelled_eos=not sampling.ignore_eos and sampling.structured is None,
        )

    return new_decoder


def load_engine(
    config: EngineConfig,
    parts: ModelParts | None = None,
    on_progress: Progress | None = None,
    draft_parts: ModelParts | None = None,
) -> LoadedEngine:
    """A warm engine, ready for its first step. To be called in the thread that will run the steps.

    Raises ConfigError or ModelLoadError. on_progress gets, in this order: opening, loading weights,
    allocating KV, warming up, ready.
    """
    report = on_progress or _silent
    torch.set_num_threads(config.resolve_num_threads())  # a setting of the calling thread
    device = config.resolve_device()
    dtype = config.resolve_dtype(device)
    report("opening")
    parts = parts or open_parts(config)
    report("loading weights")
    spec = read_spec(parts.weights)
    end_ids = end_token_ids(parts, spec)
    grammars = GrammarCompiler(parts.tokenizer, spec.vocab_size, end_ids)
    grammars.warm_up()
    backend = choose_backend(config, spec, dtype, device)
    sizes = (spec.num_layers, spec.num_kv_heads, spec.head_dim, config.block_size)
    shape = KVShape(*sizes, dtype, config.resolve_kv_dtype(dtype))
    weights = planned_weights(config, parts.weights, dtype, device, native=backend.packs_weights)
    draft = _open_draft(config, parts, draft_parts, dtype, device)
    beside = draft.cost if draft else DraftCost()
    plan = plan_memory(config, spec, shape, weights, _free_bytes(device), device.type == "cpu", beside)
    max_model_len = min(config.max_model_len or spec.max_positions, spec.max_positions)
    bits = QUANTIZATION_BITS[config.quantization]
    with torch.inference_mode(), large_blocks_returned():
        model = build_model(parts.weights, dtype, device, pack=not backend.packs_weights, bits=bits)
        if draft is not None:
            draft.load_weights()
        report("allocating KV")
        if device.type == "cuda":
            largest = LargestStep.of(config, max_model_len, spec.vocab_size)
            left = kv_pool_bytes(partial(backend.forward, model, shape, 1), largest, CudaMeter(device))
            plan = fit_to_device(plan, config, left)
        num_blocks = plan.num_blocks
        runner = Runner(backend.forward(model, shape, num_blocks))
        del model
    limits = AdmissionLimits.of(config, spec.vocab_size, max_model_len, num_blocks, end_ids)
    speculation = _speculation_of(config.speculation, draft, num_blocks, spec.vocab_size)
    core = _core_of(config, limits, runner, parts.new_decoder, speculation)
    report("warming up")
    fitting = min(num_blocks * config.block_size, max_model_len) - 1
    runner.warm_up(min(WARM_UP_TOKENS, config.max_num_batched_tokens, fitting))
    report("ready")
    return LoadedEngine(core, parts.tokenizer, limits, grammars, parts.generation_defaults)


def _core_of(
    config: EngineConfig,
    limits: AdmissionLimits,
    runner: Runner,
    new_decoder: TextDecoderFactory,
    speculation: Speculation,
) -> EngineCore:
    kv_cache = KVCache(limits.num_blocks, config.block_size, config.enable_prefix_caching)
    order = queue_order(config.scheduling_policy, config.priority_ageing_seconds)
    pace = StepPace(config.max_step_seconds)
    scheduler = Scheduler(kv_cache, config.max_num_seqs, config.max_num_batched_tokens, order, pace)
    sampler = Sampler(chooser_of(runner.forward))
    return EngineCore(scheduler, runner, sampler, WaitingRoom(limits), new_decoder, speculation)


def _open_draft(
    config: EngineConfig,
    parts: ModelParts,
    draft_parts: ModelParts | None,
    dtype: torch.dtype,
    device: torch.device,
) -> DraftLoader | None:
    settings = config.speculation
    if not isinstance(settings, DraftSpeculation):
        return None
    draft_parts = draft_parts or open_parts(replace(config, model=settings.model))
    require_same_vocabulary(settings.model, parts.tokenizer, draft_parts.tokenizer)
    return DraftLoader(config, draft_parts.weights, dtype, device)


def _speculation_of(
    settings: SpeculationSettings | None, draft: DraftLoader | None, num_blocks: int, vocab_size: int
) -> Speculation:
    if settings is None:
        return Speculation()
    drafter = drafter_of(settings, draft, num_blocks, vocab_size)
    return Speculation(drafter, settings.num_tokens, settings.max_step_tokens, settings.max_running)


def end_token_ids(parts: ModelParts, spec: DecoderSpec) -> frozenset[int]:
    """All ids that end an answer, wherever the model folder names them; ids without a logit can't."""
    named = [parts.tokenizer.eos_token_ids]
    for source in (parts.generation_defaults, parts.weights.config):
        value = source.get("eos_token_id")
        named.append(frozenset(_as_ids(value)))
    return frozenset(token_id for ids in named for token_id in ids if 0 <= token_id < spec.vocab_size)


def _as_ids(value: Any) -> Iterable[int]:
    if value is None:
        return ()
    return (value,) if isinstance(value, int) else value


def _free_bytes(device: torch.device) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_bytes()


def _silent(stage: str) -> None:
    del stage
