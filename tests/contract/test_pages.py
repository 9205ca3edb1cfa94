"""What the pages name is there: links, files, settings, metrics, make targets, commands, decisions."""

from __future__ import annotations

import ast
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from baton_cli.app import app

ROOT = Path(__file__).parents[2]
MADE = {
    "config.json",
    "tokenizer.json",
    "secrets.json",
    "operator.json",
    "catalog.toml",
    "docker-compose.override.yml",
}
"""Files that a user has, not the tree."""


@cache
def tracked() -> tuple[str, ...]:
    """The tree's files, without environments and caches (all hidden) and what was built."""
    found: list[str] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name for name in folders if name[0] != "." and name not in ("__pycache__", "build", "dist")
        ]
        found += [str(Path(folder, name).relative_to(ROOT)) for name in files]
    return tuple(sorted(found))


@cache
def source() -> str:
    kinds = (".py", ".yml", ".sh", "Dockerfile")
    return "\n".join(
        (ROOT / name).read_text(encoding="utf-8")
        for name in tracked()
        if name.endswith(kinds) and not name.startswith("tests/")
    )


def pages() -> list[str]:
    return [name for name in tracked() if name.endswith(".md") and "/knowledge/" not in name]


def words(page: str) -> list[str]:
    """What stands in backticks, and in blocks of commands."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", text) + re.findall(r"^    (.+)$", text, re.MULTILINE)


@pytest.mark.parametrize("page", pages())
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    here = [link for link in links if "://" not in link]
    assert [link for link in here if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("page", pages())
def test_files_targets_and_modules_are_there(page: str) -> None:
    names = {Path(name).name for name in tracked()} | MADE
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    missing: list[str] = []
    for word in words(page):
        files = re.findall(r"[\w./-]+\.(?:py|md|json|ya?ml|toml|tsv|cpp)\b", word)
        missing += [file for file in files if Path(file).name not in names]
        missing += [target for target in re.findall(r"\bmake ([a-z-]+)", word) if target not in targets]
        for module in re.findall(r"python -m ((?:bench|baton_contracts|tests)[\w.]*)", word):
            path = module.replace(".", "/")
            if not any(name.endswith((f"{path}.py", f"{path}/__main__.py")) for name in tracked()):
                missing.append(module)
    assert missing == []


@cache
def settings() -> set[str]:
    found: set[str] = set()
    for file in (*(ROOT / "services").glob("*/*/settings.py"), ROOT / "libs/common/baton_common/settings.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                found.add(f"BATON_{node.target.id.upper()}")
    return found


@pytest.mark.parametrize("page", pages())
def test_settings_and_metrics_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    read_elsewhere = set(re.findall(r"BATON_[A-Z_]+[A-Z]", source()))
    named = set(re.findall(r"BATON_[A-Z_]+[A-Z]", text))
    assert named - settings() - read_elsewhere == set()
    metrics = set(re.findall(r"\b(?:vllm|baton):[a-z_]+[a-z]", text))
    phases = {name for name in metrics if re.search(r":request_\w+_time_seconds$", name)}  # made of a phase
    assert {name for name in metrics - phases if name.removesuffix("_total") not in source()} == set()


def spoken_commands(page: str) -> list[str]:
    found = (re.match(r"(?:\S*/)?baton ([a-z]+[^#]*)", word) for word in words(page))
    return [match[1] for match in found if match]


def unknown_words(command: str) -> list[str]:
    """Subcommands and options that the command line does not have."""
    at: Any = typer.main.get_command(app)
    for word in command.split():
        if subcommands := getattr(at, "commands", None):
            if word not in subcommands:
                return [word]
            at = subcommands[word]
    known = {option for param in at.params for option in (*param.opts, *param.secondary_opts)}
    return [option for option in re.findall(r"(?<!\S)--[a-z-]+", command) if option not in known]


@pytest.mark.parametrize("page", pages())
def test_commands_and_their_options_exist(page: str) -> None:
    wrong = {command: found for command in spoken_commands(page) if (found := unknown_words(command))}
    assert wrong == {}


def test_the_readme_names_every_command() -> None:
    commands: Any = typer.main.get_command(app)
    named = {command.split()[0] for command in spoken_commands("README.md")}
    assert set(commands.commands) - named == {"cluster"}  # the setup container's


def test_each_decision_is_listed_and_says_whether_it_is_in_force_and_since_when() -> None:
    folder = ROOT / "docs" / "adr"
    records = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert re.findall(r"\]\(([^)]+)\)", (folder / "README.md").read_text()) == records
    status = re.compile(r"^Status: (in force|accepted|overturned by ADR \d+), .*\b\d{4}\b", re.MULTILINE)
    assert [name for name in records if not status.search((folder / name).read_text())] == []
