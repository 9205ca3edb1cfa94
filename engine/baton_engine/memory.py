"""How much memory this process may still take: what the kernel could give, under the limit of its container.

Knows files of Linux; elsewhere a share of all memory. What the page cache holds counts as free: the kernel
gives it up, and right after a model was fetched it is most of the memory.
"""

from __future__ import annotations

import os
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_SHARE_ELSEWHERE = 0.5


def available_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int:
    in_container = _left_in_container(cgroup)
    on_machine = _left_on_machine(meminfo)
    return on_machine if in_container is None else min(on_machine, in_container)


def _left_on_machine(meminfo: Path) -> int:
    try:
        return _numbers(meminfo)["MemAvailable:"] * 1024
    except (OSError, KeyError, ValueError):
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return int(whole * _SHARE_ELSEWHERE)


def _left_in_container(cgroup: Path) -> int | None:
    """None: no limit, or none that can be read."""
    try:
        limit = int((cgroup / "memory.max").read_text())
        used = int((cgroup / "memory.current").read_text())
        cached = _numbers(cgroup / "memory.stat")["file"]
    except (OSError, KeyError, ValueError):
        return None
    return max(0, limit - max(0, used - cached))


def _numbers(file: Path) -> dict[str, int]:
    """First word of each line → its number."""
    lines = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1}
