"""A real PostgreSQL for tests, where the machine has one: its own folder, a socket instead of a port."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def postgres_folder() -> Path | None:
    """The folder with `initdb` and `postgres`, newest first; None without PostgreSQL."""
    candidates = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if on_path := shutil.which("initdb"):
        candidates.insert(0, Path(on_path).parent)
    return next((folder for folder in candidates if (folder / "initdb").exists()), None)


@contextmanager
def running_postgres() -> Iterator[str]:
    """Yields a URL. PostgreSQL refuses to run as root: then it runs as the user `postgres`."""
    programs = postgres_folder()
    assert programs
    as_user = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
    folder = Path(tempfile.mkdtemp(prefix="baton-pg-", dir="/tmp"))  # short: a socket's path has a limit
    if as_user:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"

    def call(program: str, *arguments: str) -> None:
        command = [*as_user, str(programs / program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd="/", timeout=60)

    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    try:
        call("initdb", "-D", str(data), "-U", "baton", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        call("pg_ctl", "-D", str(data), "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql://baton@/postgres?host={folder}"
        finally:
            call("pg_ctl", "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
