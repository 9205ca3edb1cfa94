from __future__ import annotations

import json

import pytest

from baton_common.errors import RequestFailed
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import LimitRule
from baton_edge_api.keys import KeyRing

VALUE = json.dumps(
    {"key_id": "k1", "tenant_id": "acme", "team": "ops", "created_at": 1.0, "revoked": False}
).encode()


def ring_with(dev_key: str = "", **keys: bytes) -> KeyRing:
    ring = KeyRing(dev_key)
    ring.replace({key_hash(key): value for key, value in keys.items()})
    return ring


def refusal(ring: KeyRing, authorization: str | None) -> str:
    with pytest.raises(RequestFailed) as caught:
        ring.tenant_of(authorization)
    return caught.value.error.code


def test_the_hash_is_sha256_in_hex() -> None:
    assert key_hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


@pytest.mark.parametrize("authorization", ["Bearer secret", "bearer secret", "Bearer  secret "])
def test_a_known_key_names_its_tenant(authorization: str) -> None:
    tenant = ring_with(secret=VALUE).tenant_of(authorization)
    assert (tenant.tenant_id, tenant.team, tenant.key_id) == ("acme", "ops", "k1")


@pytest.mark.parametrize(
    "authorization", [None, "", "secret", "Basic secret", "Bearer", "Bearer ", "Bearer Secret"]
)
def test_anything_else_is_refused(authorization: str | None) -> None:
    assert refusal(ring_with(secret=VALUE), authorization) == "invalid_api_key"


def test_a_revoked_key_is_refused_at_once_and_even_if_it_is_the_development_key() -> None:
    ring = ring_with("secret", secret=VALUE)
    ring.put(key_hash("secret"), VALUE.replace(b"false", b"true"))
    assert refusal(ring, "Bearer secret") == "invalid_api_key"


def test_a_deleted_entry_is_gone() -> None:
    ring = ring_with(secret=VALUE)
    ring.remove(key_hash("secret"))
    assert refusal(ring, "Bearer secret") == "invalid_api_key"


def test_an_entry_that_can_not_be_read_counts_as_revoked() -> None:
    assert refusal(ring_with("secret", secret=b"{"), "Bearer secret") == "invalid_api_key"
    assert refusal(ring_with(secret=b'{"key_id": "k"}'), "Bearer secret") == "invalid_api_key"


def test_the_development_key_needs_no_bucket() -> None:
    ring = KeyRing("dev-key-1")
    assert ring.tenant_of("Bearer dev-key-1").key_id == "dev"
    assert refusal(KeyRing(""), "Bearer ") == "invalid_api_key"


def test_before_the_bucket_was_read_an_unknown_key_is_nobodys_fault() -> None:
    ring = KeyRing("")
    assert refusal(ring, "Bearer secret") == "bus_unavailable"
    ring.replace({})
    assert refusal(ring, "Bearer secret") == "invalid_api_key"


def test_replace_forgets_what_is_no_longer_there() -> None:
    ring = ring_with(one=VALUE, two=VALUE)
    ring.replace({key_hash("two"): VALUE})
    assert len(ring) == 1
    assert refusal(ring, "Bearer one") == "invalid_api_key"


def test_a_replaced_key_is_valid_until_its_time_is_over() -> None:
    now = [1000.0]
    ring = KeyRing("", lambda: now[0])
    rule = LimitRule(concurrent=2)
    old = KeyEntry(key_id="k1", tenant_id="acme", expires_at=1060.0)
    new = KeyEntry(key_id="k1", tenant_id="acme", limits=rule, models=("auto",))
    ring.replace({key_hash("old"): old.encode(), key_hash("new"): new.encode()})
    assert ring.tenant_of("Bearer old") == ring.tenant_of("Bearer new")
    assert (ring.rule_of("k1"), ring.models_of("k1")) == (rule, frozenset({"auto"}))
    now[0] = 1060.0
    with pytest.raises(RequestFailed, match="its time is over"):
        ring.tenant_of("Bearer old")
    ring.remove(key_hash("old"))
    assert ring.rule_of("k1") == rule
    ring.remove(key_hash("new"))
    assert ring.rule_of("k1") is None


def test_the_bucket_read_again_costs_nothing_for_keys_that_stayed_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    judge = KeyEntry.model_validate_json

    def noting(value: bytes) -> KeyEntry:
        read.append(value)
        return judge(value)

    monkeypatch.setattr(KeyEntry, "model_validate_json", noting)
    entries = {f"{number:064x}": VALUE.replace(b"k1", b"k%d" % number) for number in range(50)}
    entries[key_hash("bad")] = b"{nonsense"
    ring = KeyRing("")
    ring.replace(entries)
    assert len(read) == 51
    ring.replace(entries)
    assert len(read) == 51
    ring.replace(entries | {key_hash("bad"): VALUE})
    assert read[51:] == [VALUE]
    assert ring.tenant_of("Bearer bad").key_id == "k1"
    ring.replace({key_hash("other"): VALUE})
    assert (len(ring), refusal(ring, "Bearer bad")) == (1, "invalid_api_key")
