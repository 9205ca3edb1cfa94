"""One supervised process: real children, a clock of our own."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from baton_cli.up.plan import ProcessSpec
from baton_cli.up.supervised import SupervisedProcess


def spec(script: str, *arguments: str) -> ProcessSpec:
    return ProcessSpec("child", (sys.executable, "-c", script, *arguments), os.environ, wave=1)


class Bench:
    """A process under supervision, what it said, and the pauses that were asked for."""

    def __init__(self, spec: ProcessSpec, *, lives: list[float] | None = None, deaths: int = 1) -> None:
        self.lines: list[str] = []
        self.events: list[str] = []
        self.pauses: list[float] = []
        self.heard = asyncio.Event()
        self._deaths = deaths
        self._times = iter(time for life in lives or [] for time in (0.0, life))
        self.process = SupervisedProcess(
            spec, output=self._output, events=self.events.append, clock=self._clock, pause=self._pause
        )

    def _clock(self) -> float:
        return next(self._times, 0.0)

    def _output(self, line: str) -> None:
        self.lines.append(line)
        self.heard.set()

    async def _pause(self, stopping: asyncio.Event, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == self._deaths:
            stopping.set()


async def test_a_dead_process_is_started_again_after_longer_and_longer_pauses() -> None:
    bench = Bench(spec("import sys; print('up'); sys.exit(3)"), lives=[0.5, 0.5, 31.0, 0.5], deaths=4)
    await asyncio.wait_for(bench.process.keep_running(), 30)
    assert bench.pauses == [0.2, 0.4, 0.2, 0.4]
    assert bench.process.num_starts == 4
    assert bench.lines == ["up"] * 4
    assert bench.events[0] == "ended with exit code 3 after 0.5 s; starting it again in 0.2 s"


async def test_a_killed_process_says_which_signal_it_was() -> None:
    bench = Bench(spec("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    await asyncio.wait_for(bench.process.keep_running(), 30)
    assert bench.events[0].startswith("was ended by SIGKILL")


async def test_a_program_that_is_not_there_is_tried_again_like_one_that_died() -> None:
    bench = Bench(ProcessSpec("ghost", ("/nowhere/at/all",), {}, wave=1), deaths=2)
    await asyncio.wait_for(bench.process.keep_running(), 30)
    assert bench.pauses == [0.2, 0.4]
    assert "could not be started" in bench.events[0]


async def test_stopping_asks_first() -> None:
    script = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (print('bye'), sys.exit(0)))\n"
        "print('ready', flush=True)\nsignal.pause()\n"
    )
    bench = Bench(spec(script))
    keeper = asyncio.create_task(bench.process.keep_running())
    await asyncio.wait_for(bench.heard.wait(), 10)
    await bench.process.stop()
    await asyncio.wait_for(keeper, 10)
    assert bench.lines == ["ready", "bye"]
    assert bench.events == []
    assert bench.pauses == []


async def test_one_that_does_not_listen_is_killed() -> None:
    script = (
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True)\nwhile True: signal.pause()\n"
    )
    bench = Bench(spec(script))
    keeper = asyncio.create_task(bench.process.keep_running())
    await asyncio.wait_for(bench.heard.wait(), 10)
    await bench.process.stop(kill_after_seconds=0.05)
    await asyncio.wait_for(keeper, 10)
    assert bench.events == ["did not end within 0 s; killing it"]


async def test_lines_are_whole_bounded_and_harmless() -> None:
    script = (
        "import sys\nout = sys.stdout.buffer\n"
        "out.write('Gr\\u00fc\\u00dfe\\n'.encode()); out.write(b'\\x1b[2Jwiped\\n'); out.write(b'\\xff\\n')\n"
        "out.write(b'x' * 200000 + b'\\n'); out.write(b'no line end')\n"
    )
    bench = Bench(spec(script))
    await asyncio.wait_for(bench.process.keep_running(), 30)
    assert bench.lines[:3] == ["Grüße", "·[2Jwiped", "\N{REPLACEMENT CHARACTER}"]
    assert bench.lines[-1] == "no line end"
    assert max(map(len, bench.lines)) <= 16 * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_a_killed_supervisor_takes_its_children_along(tmp_path: Path) -> None:
    """The child holds a lock, which the kernel drops only when the child is dead."""
    lock = tmp_path / "lock"
    child = (
        "import fcntl, signal, sys\nfile = open(sys.argv[1], 'w')\nfcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\nwhile True: signal.pause()\n"
    )
    parent = (
        "import asyncio, os, sys\n"
        "from baton_cli.up.plan import ProcessSpec\nfrom baton_cli.up.supervised import SupervisedProcess\n"
        "spec = ProcessSpec('child', (sys.executable, '-c', sys.argv[1], sys.argv[2]), os.environ, 1)\n"
        "out = lambda line: print(line, flush=True)\n"
        "asyncio.run(SupervisedProcess(spec, output=out, events=out).keep_running())\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", parent, child, str(lock)], stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "locked\n"
        with lock.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        supervisor.send_signal(signal.SIGKILL)
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
