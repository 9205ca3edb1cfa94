"""What `baton up` reads from its environment and options, once, checked before anything starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from baton_cli.errors import CliError
from baton_cli.home import Home, wants_large
from baton_contracts.subjects import Service

SERVICES: tuple[Service, ...] = get_args(Service)
PLAIN_GATEWAY: tuple[Service, ...] = ("edge_api", "llm_gateway", "after_answer", "trace_console")
"""What is left of it where only other servers answer."""
MOST_REPLICAS = 64
_CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")


@dataclass(frozen=True)
class UpSettings:
    home: Home
    host: str
    port: int
    tls: bool
    dev_key: str | None
    """BATON_DEV_KEY; None: the one of the last start, or a new one."""
    large_model: bool
    extra_models: tuple[str, ...]
    services: frozenset[Service]
    num_cores: int
    replicas: Mapping[str, int]
    """By model; under the empty name for all others."""
    plain_gateway: bool = False
    """Requests go from the edge straight to the LLM gateway."""

    def num_replicas(self, model: str) -> int:
        return self.replicas.get(model, self.replicas.get("", 1))

    @property
    def complete(self) -> bool:
        """False if services were left out on purpose: then nobody waits for readiness."""
        return len(self.services) == len(PLAIN_GATEWAY if self.plain_gateway else SERVICES)

    @property
    def url(self) -> str:
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::", "") else self.host  # noqa: S104 - compared
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls else 'http'}://{shown}:{self.port}"


def read_settings(
    environment: Mapping[str, str],
    *,
    large: bool = True,
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    plain_gateway: bool = False,
    replicas: tuple[str, ...] = (),
) -> UpSettings:
    """Raises CliError with a sentence that names the bad value."""
    return UpSettings(
        home=Home.from_environment(environment),
        host=environment.get("BATON_HOST") or "127.0.0.1",
        port=_port(environment.get("BATON_PORT") or "8080"),
        tls=bool(environment.get("BATON_TLS_CERT")),
        dev_key=_dev_key(environment.get("BATON_DEV_KEY") or None),
        large_model=large and wants_large(environment),
        extra_models=models,
        services=_services(only, without, PLAIN_GATEWAY if plain_gateway else SERVICES),
        num_cores=available_cores(),
        plain_gateway=plain_gateway,
        replicas=_replicas(replicas or tuple((environment.get("BATON_REPLICAS") or "1").split(","))),
    )


def available_cores() -> int:
    """Cores that this process may use: its affinity, and the quota of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _CPU_QUOTA.read_text(encoding="ascii").split()
        return max(1, min(cores, int(quota) // int(period)))
    except (OSError, ValueError):  # no control group, or "max": no quota
        return cores


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise CliError(f"BATON_PORT must be a port number from 1 to 65535, is {text!r}.")
    return int(text)


def _replicas(given: tuple[str, ...]) -> dict[str, int]:
    """`2` for every model, `smollm2-135m=3` for that one."""
    counts: dict[str, int] = {}
    for text in given:
        model, _, number = text.strip().rpartition("=")
        if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= MOST_REPLICAS:
            raise CliError(
                f"--replicas {text!r}: give a number from 1 to {MOST_REPLICAS}, for every model (2) "
                "or for one (smollm2-135m=2)."
            )
        counts[model] = int(number)
    return counts


def _dev_key(key: str | None) -> str | None:
    if key is not None and not (
        8 <= len(key) <= 256 and key.isascii() and key.isprintable() and " " not in key
    ):
        raise CliError("BATON_DEV_KEY must be 8 to 256 printable ASCII characters without spaces.")
    return key


def _services(
    only: tuple[str, ...], without: tuple[str, ...], unless_named: tuple[Service, ...]
) -> frozenset[Service]:
    named = {name: name.replace("-", "_") for name in (*only, *without)}
    for given, name in named.items():
        if name not in SERVICES:
            raise CliError(f"There is no service {given!r}. The services are: {', '.join(SERVICES)}.")
    chosen = {named[name] for name in only} or set(unless_named)
    return frozenset(cast("set[Service]", chosen - {named[name] for name in without}))
