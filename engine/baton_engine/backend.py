"""Which forward pass an engine gets: the native kernels where they can serve the model, else torch.

Owns the choice and its log line; the rest of the engine sees a ForwardPass.
"""

from __future__ import annotations

import logging
import os
from typing import Protocol

import torch

from baton_engine.config import EngineConfig
from baton_engine.errors import ConfigError
from baton_engine.forward import FixedShapeForward, ForwardPass, TorchForward
from baton_engine.layers.attention import KVShape
from baton_engine.layers.attention_fixed import FixedShapeAttention
from baton_engine.layers.attention_torch import TorchAttention
from baton_engine.models.decoder import DecoderModel
from baton_engine.models.spec import DecoderSpec
from baton_engine.native.forward import NativeForward
from baton_engine.native.library import NativeLibrary, NativeUnavailable, load_library
from baton_engine.native.support import why_not_native

ISA_VARIABLE = "BATON_NATIVE_ISA"  # avx2 or avx512: for tests and comparisons

_log = logging.getLogger(__name__)


class Backend(Protocol):
    """packs_weights: its model shall come with plain weights, since it packs (and frees) them itself."""

    packs_weights: bool

    def forward(self, model: DecoderModel, shape: KVShape, num_blocks: int) -> ForwardPass: ...


class TorchBackend:
    packs_weights = False

    def __init__(self, device: torch.device, deterministic: bool = False) -> None:
        self.device = device
        self.deterministic = deterministic

    def forward(self, model: DecoderModel, shape: KVShape, num_blocks: int) -> ForwardPass:
        if self.deterministic:
            fixed = FixedShapeAttention(shape, num_blocks, self.device)
            return FixedShapeForward(model, fixed, self.device)
        return TorchForward(model, TorchAttention(shape, num_blocks, self.device), self.device)


class NativeBackend:
    packs_weights = True

    def __init__(self, library: NativeLibrary, isa: str, num_threads: int) -> None:
        self.library = library
        self.isa = isa
        self.num_threads = num_threads

    def forward(self, model: DecoderModel, shape: KVShape, num_blocks: int) -> ForwardPass:
        return NativeForward(self.library, self.isa, model, shape, num_blocks, self.num_threads)


def choose_backend(
    config: EngineConfig, spec: DecoderSpec, dtype: torch.dtype, device: torch.device
) -> Backend:
    """Raises ConfigError if the configuration insists on native kernels and they can't serve this model."""
    insists = config.backend == "native"
    if config.backend == "torch":
        return TorchBackend(device, config.deterministic)
    reason = why_not_native(spec, dtype, device, config.block_size)
    if reason is None:
        try:
            library = load_library()
            isa = library.isa(os.environ.get(ISA_VARIABLE))
            _log.info("backend: native kernels (%s)", isa)
            return NativeBackend(library, isa, config.resolve_num_threads())
        except NativeUnavailable as error:
            reason = str(error)
            if not insists:
                _log.warning("backend: torch, several times slower than the native kernels: %s", reason)
    if insists:
        raise ConfigError(f"The native kernels were asked for, but can't be used: {reason}")
    return TorchBackend(device, config.deterministic)
