"""Who computes the forward pass, and what happens where the kernels can't be had."""

from __future__ import annotations

import dataclasses
import fcntl
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from baton_engine import ConfigError
from baton_engine.backend import NativeBackend, TorchBackend, choose_backend
from baton_engine.models import read_spec
from baton_engine.models.registry import FAMILIES
from baton_engine.models.spec import DecoderSpec
from baton_engine.native import cache
from baton_engine.native.cache import CACHE_VARIABLE, NativeUnavailable
from baton_engine.native.library import load_library
from baton_engine.native.support import KNOWN_FIELDS, why_not_native
from tests.support.engine_driver import GREEDY, add, ask, drain, token_ids
from tests.support.native_model import native_checkpoint, usable_isas
from tests.support.tiny_model import TinyCheckpoint, tiny_config, tiny_engine

CPU = torch.device("cpu")
needs_kernels = pytest.mark.skipif(not usable_isas(), reason="no compiler or no AVX2 here")


@pytest.fixture
def fresh_library() -> Iterator[None]:
    load_library.cache_clear()
    yield
    load_library.cache_clear()


def choose(dtype: torch.dtype = torch.bfloat16, spec: DecoderSpec | None = None, **changes: Any) -> Any:
    return choose_backend(tiny_config(**changes), spec or read_spec(native_checkpoint()), dtype, CPU)


@needs_kernels
def test_auto_takes_the_kernels_for_bfloat16_only() -> None:
    assert isinstance(choose(), NativeBackend)
    assert isinstance(choose(dtype=torch.float32), TorchBackend)
    assert isinstance(choose(backend="torch"), TorchBackend)
    assert isinstance(choose(kv_dtype="int8"), NativeBackend)
    assert isinstance(choose(kv_dtype="bfloat16"), NativeBackend)
    assert isinstance(choose(kv_dtype="float32"), TorchBackend)
    assert isinstance(choose(spec=read_spec(TinyCheckpoint())), TorchBackend)  # heads of 8


def test_insisting_on_what_cannot_be_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="bfloat16, the dtype is float32"):
        choose(dtype=torch.float32, backend="native")
    with pytest.raises(ConfigError, match="multiple of 32"):
        choose(spec=read_spec(TinyCheckpoint()), backend="native")
    with pytest.raises(ConfigError, match="block_size 8"):
        choose(backend="native", block_size=8)
    with pytest.raises(ConfigError, match="KV in bfloat16 or int8, kv_dtype is float32"):
        choose(backend="native", kv_dtype="float32")
    with pytest.raises(ConfigError, match="backend is 'abacus'"):
        tiny_config(backend="abacus")
    with pytest.raises(ConfigError, match="quantization is 'int3'"):
        tiny_config(quantization="int3")
    with pytest.raises(ConfigError, match="kv_dtype is 'int4'; use one of auto, bfloat16, float32, int8"):
        tiny_config(kv_dtype="int4")


@pytest.mark.usefixtures("fresh_library")
def test_without_a_compiler_there_is_torch_and_one_line_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with caplog.at_level(logging.WARNING, "baton_engine"):
        assert isinstance(choose(), TorchBackend)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "no C++ compiler" in caplog.text
    with pytest.raises(ConfigError, match="no C\\+\\+ compiler"):
        choose(backend="native")


@pytest.mark.usefixtures("fresh_library")
def test_a_build_that_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "c++"
    broken.write_text("#!/bin/sh\necho 'c++ (broken) 12.2.0'\necho 'no room on device' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(NativeUnavailable, match="compiling them failed"):
        load_library()
    assert not list((tmp_path / "cache").iterdir())


class Builders:
    """Two that want the library at the same time, and a build that takes as long as the test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.num_built = 0

    def build(self, path: Path) -> None:
        self.num_built += 1
        self.begun.set()
        assert self.go_on.wait(10)
        path.write_bytes(b"a library")


@pytest.fixture
def builders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Builders:
    made = Builders(tmp_path / "cache")
    monkeypatch.setenv(CACHE_VARIABLE, str(made.folder))
    monkeypatch.setenv("CXX", sys.executable)  # anything that is there
    monkeypatch.setattr(cache, "_compile", made.build)
    return made


def test_who_comes_while_another_compiles_waits_and_takes_that_library(
    builders: Builders, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_waits = threading.Event()
    flock = fcntl.flock

    def watched(handle: int, operation: int) -> None:
        try:
            flock(handle, operation)
        except BlockingIOError:
            second_waits.set()
            raise

    monkeypatch.setattr(fcntl, "flock", watched)
    monkeypatch.setattr(cache, "LOOK_AGAIN_SECONDS", 0.001)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.cached_library)
        assert builders.begun.wait(10)
        second = pool.submit(cache.cached_library)
        assert second_waits.wait(10)
        builders.go_on.set()
        assert first.result(10) == second.result(10)
    assert builders.num_built == 1
    assert [file.suffix for file in builders.folder.iterdir()] == [".so"]


def test_who_has_waited_longer_than_a_build_may_take_goes_on_without(
    builders: Builders, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders.go_on.set()
    builders.folder.mkdir()
    monkeypatch.setattr(cache, "COMPILE_SECONDS", 0.01)
    stuck = os.open(builders.folder, os.O_RDONLY)
    try:
        fcntl.flock(stuck, fcntl.LOCK_EX)
        assert cache.cached_library().read_bytes() == b"a library"
    finally:
        os.close(stuck)


def test_every_field_of_a_spec_is_known_to_the_kernels() -> None:
    """A new field: teach the kernels, or let why_not_native refuse it; then add it to KNOWN_FIELDS."""
    assert {field.name for field in dataclasses.fields(DecoderSpec)} == KNOWN_FIELDS


@needs_kernels
@pytest.mark.parametrize("family", FAMILIES)
def test_the_kernels_serve_every_family(family: str) -> None:
    assert isinstance(choose(spec=read_spec(native_checkpoint(model_type=family))), NativeBackend)


def test_other_devices_are_refused() -> None:
    reason = why_not_native(
        read_spec(native_checkpoint()), torch.bfloat16, torch.device("cuda"), 16, torch.bfloat16
    )
    assert reason is not None
    assert "cuda" in reason


@needs_kernels
def test_the_set_up_program_names_the_library() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "baton_engine.native"], capture_output=True, text=True, check=True, timeout=100
    )
    assert str(load_library().path) in done.stdout


@needs_kernels
def test_an_engine_on_the_kernels_answers_the_same_alone_batched_chunked_and_preempted() -> None:
    prompts = [[(7 * one + 3 * at) % 250 for at in range(20 + 9 * one)] for one in range(6)]
    checkpoint = native_checkpoint()

    def answers(**changes: Any) -> list[list[int]]:
        engine = tiny_engine(checkpoint, dtype="bfloat16", backend="native", **changes)
        for one, prompt in enumerate(prompts):
            add(engine, ask(f"r{one}", prompt, GREEDY))
        deltas = drain(engine)
        if changes.get("num_blocks"):
            assert engine.core.stats().preemptions_total > 0
        return [token_ids(deltas[f"r{one}"]) for one in range(len(prompts))]

    expected = answers(max_num_seqs=1)
    assert all(len(answer) == 24 for answer in expected)
    assert answers() == expected
    assert answers(max_num_batched_tokens=9, max_num_seqs=6) == expected
    assert answers(num_blocks=14) == expected


TOO_MANY_THREADS = """
import resource
from baton_engine import ModelLoadError
from tests.support.native_model import native_checkpoint, native_forward, usable_isas

pages = int(open("/proc/self/statm").read().split()[0])
most = pages * resource.getpagesize() + 256 * 2**20  # room for some dozens of stacks
resource.setrlimit(resource.RLIMIT_AS, (most, most))
try:
    native_forward(native_checkpoint(), usable_isas()[0], num_threads=4096)
except ModelLoadError as error:
    print(error)
"""


@needs_kernels
def test_a_system_without_another_thread_is_told_and_no_abort() -> None:
    done = subprocess.run(
        [sys.executable, "-c", TOO_MANY_THREADS], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "no 4096 threads" in done.stdout
