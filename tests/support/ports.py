"""Ports for processes that bind theirs long after a test has chosen it."""

from __future__ import annotations

import secrets
import socket

_FIRST, _LAST = 10_000, 30_000


def free_port() -> int:
    """One below those that the system gives out (to outgoing connections, for port 0): it stays free."""
    while True:
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
