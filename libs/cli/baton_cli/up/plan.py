"""Which processes make up one copy of Baton, in what environment, started and stopped in what order. Pure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from baton_cli.up.settings import SERVICES, UpSettings
from baton_contracts.subjects import Service

START_ORDER: tuple[tuple[Service, ...], ...] = (
    ("after_answer", "trace_console"),
    ("engine_worker", "embedder"),
    ("output_guardrails", "inference_router", "llm_gateway", "input_guardrails", "prompt_builder"),
    ("edge_api",),
)
"""Waves. Stopped the other way round: first nothing new comes in, last the books are closed."""

_DRAIN_SECONDS = 7
"""Less than the supervisor waits before it kills."""

_VAULT_HOLDERS: tuple[Service, ...] = ("input_guardrails", "output_guardrails")
_TORCH_SERVICES: tuple[Service, ...] = ("embedder", "input_guardrails")
_OURS_TO_SET = ("BATON_NATS_", "BATON_VAULT_KEY", "BATON_DEV_KEY", "BATON_API_KEY", "BATON_MODEL")


@dataclass(frozen=True)
class ProcessSpec:
    name: str
    """For people: the service, and for an engine worker its model and, if there are several, a number."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    wave: int


@dataclass(frozen=True)
class LocalModel:
    name: str
    path: Path


@dataclass(frozen=True)
class Secrets:
    """Made anew at each start; they live in the environment of the processes and in run/, mode 0600."""

    passwords: Mapping[str, str]
    """By NATS user: each service, and `operator`."""
    vault_key: str


def plan_processes(
    settings: UpSettings,
    models: tuple[LocalModel, ...],
    nats_url: str,
    secrets: Secrets,
    inherited: Mapping[str, str],
) -> list[ProcessSpec]:
    """In the order in which they start."""
    base = {name: value for name, value in inherited.items() if not name.startswith(_OURS_TO_SET)}
    specs: list[ProcessSpec] = []
    for wave, services in enumerate(START_ORDER, start=1):
        for service in services:
            if service not in settings.services:
                continue
            environment = base | _environment(service, settings, nats_url, secrets)
            if service == "engine_worker":
                specs += [spec for model in models for spec in _engines(model, environment, settings, wave)]
            else:
                specs.append(ProcessSpec(service, _command(service), environment, wave))
    return specs


def service_environments(settings: UpSettings, nats_url: str, secrets: Secrets) -> dict[str, dict[str, str]]:
    """What a stand-in for each service needs, those that were left out included."""
    everything = {service: _environment(service, settings, nats_url, secrets) for service in SERVICES}
    return {
        service: {name: value for name, value in environment.items() if name.startswith("BATON_")}
        for service, environment in everything.items()
    }


def _command(service: Service) -> tuple[str, ...]:
    return (sys.executable, "-m", f"baton_{service}")


def _engines(
    model: LocalModel, environment: Mapping[str, str], settings: UpSettings, wave: int
) -> list[ProcessSpec]:
    """One for each replica; they divide the cores and the memory that one alone would take."""
    count = settings.num_replicas(model.name)
    threads = environment.get("BATON_ENGINE_THREADS", str(max(1, settings.num_cores // count)))
    own = {
        "BATON_MODEL": model.name,
        "BATON_MODEL_PATH": str(model.path),
        "BATON_ENGINE_THREADS": threads,
        "OMP_NUM_THREADS": threads,
    }
    if count > 1:
        own["BATON_ENGINE_MEMORY_SHARE"] = environment.get("BATON_ENGINE_MEMORY_SHARE", f"{1 / count:.4f}")
    name = f"engine_worker:{model.name}"
    names = [name] if count == 1 else [f"{name}#{number}" for number in range(1, count + 1)]
    return [ProcessSpec(each, _command("engine_worker"), {**environment, **own}, wave) for each in names]


def _environment(service: Service, settings: UpSettings, nats_url: str, secrets: Secrets) -> dict[str, str]:
    environment = {
        "BATON_HOME": str(settings.home.root),
        "BATON_HOST": settings.host,
        "BATON_PORT": str(settings.port),
        "BATON_NATS_URL": nats_url,
        "BATON_NATS_USER": service,
        "BATON_NATS_PASSWORD": secrets.passwords[service],
        "BATON_LOG_FORMAT": "plain",
        "BATON_DRAIN_SECONDS": str(_DRAIN_SECONDS),
        "PYTHONUNBUFFERED": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",  # weights are here; no library may look for newer ones in passing
    }
    if settings.plain_gateway:
        environment["BATON_PLAIN_GATEWAY"] = "1"
    if service in _VAULT_HOLDERS:
        environment["BATON_VAULT_KEY"] = secrets.vault_key
    if service != "engine_worker":
        # Threads that spin while they wait would take the cores from the engines.
        environment["OMP_NUM_THREADS"] = str(settings.num_cores if service in _TORCH_SERVICES else 1)
        environment["OMP_WAIT_POLICY"] = "PASSIVE"
    return environment
