"""Whether this container's service lives: its own lease, heard on the bus as everybody else hears it.

Healthy: the process's event loop runs, the bus carries its lease, and the lease says ready or draining.
Standard library only, because it runs every few seconds beside the service.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

SECONDS = 3.0
"""Leases come every half second."""
_HEALTHY = ("ready", "draining")


def main() -> None:
    try:
        state = lease_state(own_environment(), own_instance(), time.monotonic() + SECONDS)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"not healthy: {error or type(error).__name__}")
    if state not in _HEALTHY:
        sys.exit(f"not healthy: {state}")


def own_environment() -> dict[str, str]:
    """What the entrypoint gave to the service; the check gets only the image's variables."""
    file = Path("/run/baton/env", f"{os.environ['BATON_SERVICE']}.env")
    pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
    return {name: "".join(shlex.split(value)) for name, _, value in pairs}


def own_instance() -> str:
    file = Path(os.environ["BATON_INSTANCE_FILE"])
    try:
        return file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        raise ValueError("the service is starting") from None


def lease_state(environment: dict[str, str], instance: str, give_up_at: float) -> str:
    """Raises OSError or ValueError if none is heard in time."""
    address = urlsplit(environment["BATON_NATS_URL"])
    with socket.create_connection((address.hostname, address.port or 4222), timeout=SECONDS) as bus:
        stream = bus.makefile("rb")
        login = {
            "user": environment["BATON_NATS_USER"],
            "pass": environment["BATON_NATS_PASSWORD"],
            "name": "health",
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
        }
        bus.sendall(f"CONNECT {json.dumps(login)}\r\nSUB baton.v1.lease.{instance} 1\r\n".encode())
        while (left := give_up_at - time.monotonic()) > 0:
            bus.settimeout(left)
            line = stream.readline()
            if not line or line.startswith(b"-ERR"):
                raise ValueError(f"the bus said {line.decode(errors='replace').strip() or 'nothing'}")
            if line.startswith(b"PING"):
                bus.sendall(b"PONG\r\n")
            elif line.startswith(b"MSG"):
                return str(json.loads(stream.read(int(line.split()[-1])))["state"])
    raise ValueError(f"no lease of {instance} within {SECONDS:.0f} s")


if __name__ == "__main__":
    main()
