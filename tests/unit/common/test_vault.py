"""The vault opens with its key, for its request, and not otherwise."""

from __future__ import annotations

import pytest

from baton_common.vault import Vault, VaultError, new_key

VALUES = {"<PERSON_1>": "María Ñandú", "<EMAIL_1>": 'a"b\n@c.d'}


def test_what_is_sealed_comes_back() -> None:
    vault = Vault(new_key())
    sealed = vault.seal("a" * 32, VALUES)
    assert "María" not in sealed
    assert vault.open("a" * 32, sealed) == VALUES


def test_it_does_not_open_for_another_request_or_key_or_damaged() -> None:
    vault = Vault(new_key())
    sealed = vault.seal("a" * 32, VALUES)
    for attempt in (
        lambda: vault.open("b" * 32, sealed),
        lambda: Vault(new_key()).open("a" * 32, sealed),
        lambda: vault.open("a" * 32, sealed[:-8] + "AAAAAAA="),
        lambda: vault.open("a" * 32, "%%%"),
    ):
        with pytest.raises(VaultError):
            attempt()


def test_a_short_key_is_refused_with_its_variable_named() -> None:
    with pytest.raises(VaultError, match="BATON_VAULT_KEY"):
        Vault("c2hvcnQ=")
