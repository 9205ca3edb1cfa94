"""What the environment and the options of `baton up` mean, and what they may not be."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_cli.errors import CliError
from baton_cli.up.settings import SERVICES, read_settings


def test_without_anything_set_it_is_port_8080_and_everything() -> None:
    settings = read_settings({})
    assert (settings.host, settings.port, settings.url) == ("127.0.0.1", 8080, "http://127.0.0.1:8080")
    assert settings.home.root == Path.home() / ".baton"
    assert settings.services == set(SERVICES)
    assert settings.large_model
    assert settings.complete
    assert settings.num_cores >= 1


def test_everything_can_be_set(tmp_path: Path) -> None:
    environment = {
        "BATON_HOME": str(tmp_path),
        "BATON_HOST": "0.0.0.0",  # noqa: S104
        "BATON_PORT": "9001",
        "BATON_TLS_CERT": "cert.pem",
        "BATON_DEV_KEY": "sk-mine-1234",
        "BATON_LARGE_MODEL": "off",
    }
    settings = read_settings(environment, without=("engine-worker", "embedder"), models=("mine",))
    assert settings.home.root == tmp_path
    assert settings.url == "https://127.0.0.1:9001"
    assert settings.dev_key == "sk-mine-1234"
    assert not settings.large_model
    assert settings.services == set(SERVICES) - {"engine_worker", "embedder"}
    assert not settings.complete
    assert settings.extra_models == ("mine",)


def test_only_names_all_that_runs() -> None:
    assert read_settings({}, only=("edge_api", "llm-gateway")).services == {"edge_api", "llm_gateway"}
    assert not read_settings({}, large=False).large_model


@pytest.mark.parametrize("port", ["0", "65536", "-1", "http", "80 80", "８０"])
def test_a_bad_port_is_named(port: str) -> None:
    with pytest.raises(CliError, match="BATON_PORT"):
        read_settings({"BATON_PORT": port})


@pytest.mark.parametrize(
    "key", ["short", "with a space in it", "zw\u00f6lf-zeichen", "x" * 257, "line\nbreak1"]
)
def test_a_bad_development_key_is_refused(key: str) -> None:
    with pytest.raises(CliError, match="BATON_DEV_KEY"):
        read_settings({"BATON_DEV_KEY": key})


def test_an_unknown_service_is_named_with_those_there_are() -> None:
    with pytest.raises(CliError, match=r"no service 'guardrail'.*input_guardrails"):
        read_settings({}, without=("guardrail",))


def test_a_plain_gateway_is_what_answers_without_models() -> None:
    settings = read_settings({}, plain_gateway=True)
    assert settings.services == {"edge_api", "llm_gateway", "after_answer", "trace_console"}
    assert settings.complete
    assert not read_settings({}, plain_gateway=True, without=("trace-console",)).complete


def test_replicas_are_counted_for_all_models_or_for_one() -> None:
    assert read_settings({}).num_replicas("any") == 1
    settings = read_settings({}, replicas=("2", "small=3"))
    assert (settings.num_replicas("small"), settings.num_replicas("large")) == (3, 2)
    settings = read_settings({"BATON_REPLICAS": "large=2"})
    assert (settings.num_replicas("small"), settings.num_replicas("large")) == (1, 2)


@pytest.mark.parametrize("text", ["0", "65", "-1", "two", "small=", "small=0", "²"])
def test_a_bad_number_of_replicas_is_named(text: str) -> None:
    with pytest.raises(CliError, match="--replicas"):
        read_settings({}, replicas=(text,))
