"""Loads a script of infra/docker, which is no package."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "infra" / "docker"


def load_script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"infra_docker_{name}", FOLDER / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
