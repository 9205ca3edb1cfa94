"""Which forward pass an engine gets: the native kernels where they can serve the model, else torch.

Owns the choice and its log line; the rest of the engine sees a ForwardPass.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol

import torch

from baton_engine.choosing import Chooser, choose
from baton_engine.config import EngineConfig
from baton_engine.cuda_graphs import CudaGraphRecorder
from baton_engine.errors import ConfigError
from baton_engine.forward import FixedShapeForward, ForwardPass, TorchForward
from baton_engine.layers.attention import KVShape
from baton_engine.layers.attention_fixed import FixedShapeAttention
from baton_engine.layers.attention_gpu import GPUAttention
from baton_engine.layers.attention_torch import MOST_GATHERED, TorchAttention
from baton_engine.models.decoder import DecoderModel
from baton_engine.models.spec import DecoderSpec
from baton_engine.native.cache import NativeUnavailable
from baton_engine.native.forward import NativeForward
from baton_engine.native.library import NativeLibrary, load_library
from baton_engine.native.support import why_not_native
from baton_engine.padded_decode import DecodeShapes
from baton_engine.padded_forward import PaddedForward, Recorder

ISA_VARIABLE = "BATON_NATIVE_ISA"  # avx2 or avx512: for tests and comparisons

_log = logging.getLogger(__name__)


class Backend(Protocol):
    """packs_weights: its model shall come with plain weights, since it packs (and frees) them itself."""

    packs_weights: bool

    def forward(self, model: DecoderModel, shape: KVShape, num_blocks: int) -> ForwardPass: ...


class TorchBackend:
    packs_weights = False

    def __init__(self, device: torch.device, config: EngineConfig) -> None:
        self.device = device
        self.config = config

    def forward(self, model: DecoderModel, shape: KVShape, num_blocks: int) -> ForwardPass:
        device = self.device
        if self.config.deterministic:
            return FixedShapeForward(model, FixedShapeAttention(shape, num_blocks, device), device)
        if device.type == "cuda":
            recorder = CudaGraphRecorder(device) if self.config.cuda_graphs else None
            return padded_forward(model, shape, num_blocks, device, self.config, recorder)
        return TorchForward(model, TorchAttention(shape, num_blocks, device), device)


def padded_forward(
    model: DecoderModel,
    shape: KVShape,
    num_blocks: int,
    device: torch.device,
    config: EngineConfig,
    recorder: Recorder | None,
) -> PaddedForward:
    """What a GPU gets. It computes on a CPU too, slower than `TorchForward`: that is how it is tested."""
    attention = GPUAttention(shape, num_blocks, device)
    for sentence in attention.use_what_works(model.spec.num_heads):
        _log.info("attention: %s", sentence)
    max_model_len = min(config.max_model_len or model.spec.max_positions, model.spec.max_positions)
    most_tokens = MOST_GATHERED if attention.paged is None else None
    shapes = DecodeShapes.up_to(config.max_num_seqs, max_model_len, shape.block_size, most_tokens)
    return PaddedForward(model, attention, device, shapes, recorder)


class NativeBackend:
    packs_weights = True

    def __init__(self, library: NativeLibrary, isa: str, num_threads: int) -> None:
        self.library = library
        self.isa = isa
        self.num_threads = num_threads

    def forward(self, model: DecoderModel, shape: KVShape, num_blocks: int) -> ForwardPass:
        return NativeForward(self.library, self.isa, model, shape, num_blocks, self.num_threads)


def chooser_of(forward: ForwardPass) -> Chooser:
    """What chooses tokens from its logits: the kernels' own, or torch."""
    return forward.choose if isinstance(forward, NativeForward) else choose


def choose_backend(
    config: EngineConfig, spec: DecoderSpec, dtype: torch.dtype, device: torch.device
) -> Backend:
    """Raises ConfigError if the configuration insists on native kernels and they can't serve this model."""
    insists = config.backend == "native"
    if config.backend == "torch":
        return TorchBackend(device, config)
    kv_dtype = config.resolve_kv_dtype(dtype)
    reason = why_not_native(spec, dtype, device, config.block_size, kv_dtype)
    if reason is None:
        try:
            library = load_library()
            isa = library.isa(os.environ.get(ISA_VARIABLE))
            always = ", deterministic as always" if config.deterministic else ""
            _log.info("backend: native kernels (%s%s)", isa, always)
            return NativeBackend(library, isa, config.resolve_num_threads())
        except NativeUnavailable as error:
            reason = str(error)
            if not insists:
                _log.warning("backend: torch, several times slower than the native kernels: %s", reason)
    if insists:
        raise ConfigError(f"The native kernels were asked for, but can't be used: {reason}")
    return TorchBackend(device, config)
