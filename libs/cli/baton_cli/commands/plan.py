"""`baton plan`: what a model will take in memory, before anything is loaded. The engine counts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from baton_cli.errors import CliError
from baton_cli.home import Home
from baton_cli.models.store import ModelStore
from baton_cli.processes import follow
from baton_cli.terminal import console

_PLANNER = "baton_engine.plan"


def plan(
    model: Annotated[
        str, typer.Argument(help="A model that is here, a folder, a .gguf file or any config.json.")
    ],
    quantization: Annotated[str | None, typer.Option(help="int8 or int4.")] = None,
    kv_dtype: Annotated[str | None, typer.Option(help="bfloat16, float32 or int8.")] = None,
    memory_gib: Annotated[
        float | None, typer.Option(help="Of a device of its own. Without: what is free here.")
    ] = None,
    chat_tokens: Annotated[int, typer.Option(help="Length of the chats that are counted.")] = 4096,
) -> None:
    """The bill of a model: weights, KV a token, and the chats that fit."""
    arguments = [str(_place_of(model)), f"--chat-tokens={chat_tokens}"]
    if quantization is not None:
        arguments += ["--quantization", quantization]
    if kv_dtype is not None:
        arguments += ["--kv-dtype", kv_dtype]
    if memory_gib is not None:
        arguments.append(f"--memory-gib={memory_gib}")  # one word: -inf is no option
    said: list[str] = []
    if follow([sys.executable, "-m", _PLANNER, *arguments], said.append):
        reason = said[-1] if said else "the planner ended without a word"
        raise CliError(reason.removeprefix(f"{_PLANNER}: "))
    for line in said:
        console.print(line, highlight=False, soft_wrap=True)


def _place_of(model: str) -> Path:
    """An installed model's folder by its name, else the path as given."""
    path = Path(model)
    if path.exists():
        return path
    installed = ModelStore(Home.from_environment(os.environ).models).find(model)
    if installed is None:
        raise CliError(f"{model} is neither a model that is here (`baton models list`) nor a file or folder.")
    return installed.path
