"""Which processes there are, in what order, and who gets to know which secret."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from baton_cli.up.nats_config import OPERATOR
from baton_cli.up.plan import LocalModel, ProcessSpec, Secrets, plan_processes
from baton_cli.up.settings import SERVICES, read_settings

SECRETS = Secrets({user: f"pw-{user}" for user in (*SERVICES, OPERATOR)}, vault_key="VAULT")
MODELS = (LocalModel("small", Path("/m/small")), LocalModel("large", Path("/m/large")))


def plan(**options: tuple[str, ...]) -> dict[str, ProcessSpec]:
    inherited = {
        "PATH": "/bin",
        "BATON_DEV_KEY": "sk-secret-key",
        "BATON_VAULT_KEY": "old",
        "BATON_NATS_PASSWORD": "old",
        "BATON_EXTRA": "kept",
    }
    settings = read_settings({"BATON_HOME": "/h", "BATON_PORT": "9000"}, **options)
    specs = plan_processes(settings, MODELS, "nats://127.0.0.1:1", SECRETS, inherited)
    return {spec.name: spec for spec in specs}


def test_the_books_open_first_and_the_edge_last() -> None:
    names = list(plan())
    assert names[:4] == ["after_answer", "trace_console", "engine_worker:small", "engine_worker:large"]
    assert names[-1] == "edge_api"
    assert len(names) == 11
    waves = [spec.wave for spec in plan().values()]
    assert waves == sorted(waves)
    assert min(waves) == 1  # the bus is wave 0: last to stop


def test_a_process_shows_its_service_in_its_command_line() -> None:
    specs = plan()
    assert specs["edge_api"].command == (sys.executable, "-m", "baton_edge_api")
    assert specs["engine_worker:small"].command == (sys.executable, "-m", "baton_engine_worker")


def test_each_has_its_own_user_and_no_other_password() -> None:
    for name, spec in plan().items():
        service = name.partition(":")[0]
        assert spec.environment["BATON_NATS_USER"] == service
        passwords = {value for value in spec.environment.values() if value.startswith("pw-")}
        assert passwords == {f"pw-{service}"}


def test_only_the_guardrails_hold_the_vault_key_and_nobody_the_development_key() -> None:
    specs = plan()
    holders = {name for name, spec in specs.items() if spec.environment.get("BATON_VAULT_KEY")}
    assert holders == {"input_guardrails", "output_guardrails"}
    assert specs["input_guardrails"].environment["BATON_VAULT_KEY"] == "VAULT"
    assert not any("sk-secret-key" in spec.environment.values() for spec in specs.values())


def test_an_engine_knows_its_model_and_all_cores() -> None:
    cores = str(read_settings({}).num_cores)
    environment = plan()["engine_worker:large"].environment
    assert environment["BATON_MODEL"] == "large"
    assert environment["BATON_MODEL_PATH"] == "/m/large"
    assert environment["BATON_ENGINE_THREADS"] == cores
    assert environment["OMP_NUM_THREADS"] == cores
    assert plan()["llm_gateway"].environment["OMP_NUM_THREADS"] == "1"


def test_replicas_divide_the_cores_and_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("baton_cli.up.settings.available_cores", lambda: 8)
    specs = plan(replicas=("2", "large=3"))
    engines = [name for name in specs if name.startswith("engine_worker")]
    assert engines == [
        f"engine_worker:{each}" for each in ("small#1", "small#2", "large#1", "large#2", "large#3")
    ]
    small, large = specs["engine_worker:small#2"].environment, specs["engine_worker:large#1"].environment
    assert (small["BATON_ENGINE_THREADS"], small["BATON_ENGINE_MEMORY_SHARE"]) == ("4", "0.5000")
    assert (large["OMP_NUM_THREADS"], large["BATON_ENGINE_MEMORY_SHARE"]) == ("2", "0.3333")
    assert large["BATON_MODEL"] == "large"
    assert "BATON_ENGINE_MEMORY_SHARE" not in plan()["engine_worker:small"].environment


def test_the_rest_of_the_environment_is_passed_on() -> None:
    environment = plan()["edge_api"].environment
    assert (environment["PATH"], environment["BATON_EXTRA"]) == ("/bin", "kept")
    assert (environment["BATON_HOME"], environment["BATON_PORT"]) == ("/h", "9000")
    assert environment["BATON_NATS_URL"] == "nats://127.0.0.1:1"


def test_services_can_be_left_out() -> None:
    assert "engine_worker:small" not in plan(without=("engine_worker",))
    assert list(plan(only=("edge_api",))) == ["edge_api"]
