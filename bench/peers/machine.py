"""What a figure has to be read beside: the machine, and how much of it others took meanwhile."""

from __future__ import annotations

import os
import platform
import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

INTERESTING_FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")


@dataclass
class Neighbours:
    """cores: mean number of cores that neither the server nor the client had, but somebody else."""

    cores: float | None = None
    load_average: float = 0.0


@contextmanager
def neighbours() -> Generator[Neighbours]:
    """Filled when the block ends; servers started in it must have ended too (their time is known then)."""
    seen = Neighbours()
    started, busy, own = time.monotonic(), _busy_seconds(), _own_seconds()
    yield seen
    seconds = time.monotonic() - started
    seen.load_average = round(os.getloadavg()[0], 2)
    now = _busy_seconds()
    if busy is not None and now is not None:
        seen.cores = round(max(0.0, (now - busy - (_own_seconds() - own)) / seconds), 2)


def _busy_seconds() -> float | None:
    """Of all cores since boot, time stolen by the host included; None where the kernel does not say."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def describe() -> dict[str, object]:
    cpu: dict[str, str] = {}
    info = Path("/proc/cpuinfo")
    if info.exists():
        pairs = (line.partition(":") for line in info.read_text().splitlines() if ":" in line)
        cpu = {name.strip(): value.strip() for name, _, value in pairs}
    flags = cpu.get("flags", "").split()
    return {
        "cpu": f"{cpu.get('model name', platform.processor())}, family {cpu.get('cpu family', 'unknown')}",
        "flags": [flag for flag in INTERESTING_FLAGS if flag in flags],
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }
