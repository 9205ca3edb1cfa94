"""One holder at a time; a dead one's lock is nobody's."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from baton_cli.file_lock import LockHeld, locked


def test_the_second_is_told_who_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "run" / "lock"
    with locked(path):
        with pytest.raises(LockHeld) as caught, locked(path):
            pytest.fail("held twice")
        assert caught.value.pid == os.getpid()
    with locked(path):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_killed_holder_leaves_no_stale_lock(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    script = (
        "import sys\nfrom pathlib import Path\nfrom baton_cli.file_lock import locked\n"
        "with locked(Path(sys.argv[1])):\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LockHeld) as caught, locked(path):
            pytest.fail("held twice")
        assert caught.value.pid == holder.pid
        holder.send_signal(signal.SIGKILL)
        holder.wait(10)
    with locked(path):
        assert path.read_text() == f"{os.getpid()}\n"
