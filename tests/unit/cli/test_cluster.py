"""What `baton cluster prepare` writes: made once, one file for each user number, the rest from it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from baton_cli.cluster import NATS_UID, Addresses, Cluster, ClusterSecrets, uid_of, with_password
from baton_cli.errors import CliError
from baton_cli.home import Home
from baton_cli.up.settings import SERVICES

ADDRESSES = Addresses("nats://nats:4222", "postgresql://baton@postgres:5432/baton", Path("/data"), 8222)


class Prepared:
    """One run on `root`: what it returned, and to whom it gave which file."""

    def __init__(self, root: Path, dev_key: str | None = None, addresses: Addresses = ADDRESSES) -> None:
        self.home = Home(root)
        self.owners: dict[str, int] = {}
        cluster = Cluster(self.home, addresses, self._give)
        self.secrets: ClusterSecrets = cluster.prepare(dev_key)

    def _give(self, path: Path, uid: int) -> None:
        self.owners[path.name] = uid

    def environment(self, service: str) -> dict[str, str]:
        lines = self.home.environment_file(service).read_text().splitlines()
        pairs = (line.partition("=") for line in lines)
        return {name: "".join(shlex.split(value)) for name, _, value in pairs}


def test_each_service_gets_its_own_user_and_nobody_elses_password(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    for service in SERVICES:
        environment = prepared.environment(service)
        assert environment["BATON_NATS_USER"] == service
        assert environment["BATON_NATS_URL"] == "nats://nats:4222"
        text = prepared.home.environment_file(service).read_text()
        held = {user for user, password in prepared.secrets.passwords.items() if password in text}
        assert held == {service}


def test_each_file_is_given_to_the_one_service_that_reads_it(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    assert uid_of("edge_api") == 10001
    assert uid_of("trace_console") == 10010
    for service in SERVICES:
        assert prepared.owners[f".{service}.env.fresh"] == uid_of(service)
        assert prepared.home.environment_file(service).stat().st_mode & 0o777 == 0o600
    assert prepared.owners[".nats.conf.fresh"] == NATS_UID
    assert prepared.owners["nats"] == NATS_UID  # JetStream's folder
    assert not list(tmp_path.rglob("*.fresh"))


def test_a_service_can_open_its_own_file_and_list_nothing(tmp_path: Path) -> None:
    home = Prepared(tmp_path).home
    assert home.run.stat().st_mode & 0o777 == 0o711
    assert (home.run / "env").stat().st_mode & 0o777 == 0o711
    assert (home.run / "secrets.json").stat().st_mode & 0o777 == 0o600
    assert (home.run / "database").stat().st_mode & 0o777 == 0o700


def test_only_the_guardrails_hold_the_vault_key_and_only_the_edge_the_development_key(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    environments = {service: prepared.environment(service) for service in SERVICES}
    with_vault = {service for service, values in environments.items() if "BATON_VAULT_KEY" in values}
    assert with_vault == {"input_guardrails", "output_guardrails"}
    with_dev_key = {service for service, values in environments.items() if "BATON_DEV_KEY" in values}
    assert with_dev_key == {"edge_api"}
    assert environments["edge_api"]["BATON_DEV_KEY"] == prepared.secrets.dev_key


def test_the_database_password_stands_in_one_url_and_one_file(tmp_path: Path) -> None:
    prepared = Prepared(tmp_path)
    password = prepared.secrets.database_password
    url = prepared.environment("after_answer")["BATON_DATABASE_URL"]
    assert url == f"postgresql://baton:{password}@postgres:5432/baton"
    assert (prepared.home.run / "database" / "password").read_text() == password
    assert "BATON_DATABASE_URL" not in prepared.environment("edge_api")


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
    first = Prepared(tmp_path)
    before = {path: path.read_text() for path in first.home.run.rglob("*") if path.is_file()}
    second = Prepared(tmp_path)
    assert second.secrets == first.secrets
    assert {path: path.read_text() for path in before} == before


def test_a_named_development_key_replaces_the_kept_one_and_stays(tmp_path: Path) -> None:
    first = Prepared(tmp_path)
    named = Prepared(tmp_path, dev_key="sk-of-my-own-choice")
    assert named.secrets.dev_key == "sk-of-my-own-choice" != first.secrets.dev_key
    assert named.secrets.passwords == first.secrets.passwords
    assert Prepared(tmp_path).environment("edge_api")["BATON_DEV_KEY"] == "sk-of-my-own-choice"


def test_a_user_that_is_new_gets_a_password_and_the_others_keep_theirs(tmp_path: Path) -> None:
    first = Prepared(tmp_path)
    file = first.home.run / "secrets.json"
    kept = json.loads(file.read_text())
    del kept["passwords"]["embedder"]
    file.write_text(json.dumps(kept))
    second = Prepared(tmp_path)
    assert second.secrets.passwords["embedder"]
    assert second.secrets.passwords["edge_api"] == first.secrets.passwords["edge_api"]


def test_the_bus_listens_on_all_its_addresses_unless_it_is_reached_by_loop_back(tmp_path: Path) -> None:
    text = Prepared(tmp_path / "a").home.nats_config.read_text()
    assert "host: 0.0.0.0" in text
    assert "port: 4222" in text
    assert 'http: "127.0.0.1:8222"' in text
    assert 'store_dir: "/data"' in text
    local = Addresses("nats://127.0.0.1:4333", ADDRESSES.database_url, Path("/data"), 8222)
    text = Prepared(tmp_path / "b", addresses=local).home.nats_config.read_text()
    assert "host: 127.0.0.1\nport: 4333" in text


def test_damaged_secrets_are_not_replaced_behind_the_databases_back(tmp_path: Path) -> None:
    file = Prepared(tmp_path).home.run / "secrets.json"
    file.write_text("{half")
    with pytest.raises(CliError, match=r"secrets\.json can't be read"):
        Prepared(tmp_path)
    assert file.read_text() == "{half"


def test_a_password_with_special_characters_is_one_part_of_the_url() -> None:
    assert with_password("postgresql://b@h:1/d", "p@/:x") == "postgresql://b:p%40%2F%3Ax@h:1/d"


@pytest.mark.parametrize("url", ["postgresql://postgres/baton", "baton", ""])
def test_a_database_url_without_a_user_is_refused(url: str) -> None:
    with pytest.raises(CliError, match="must name a user and a host"):
        with_password(url, "x")
