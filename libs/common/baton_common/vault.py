"""The PII vault: masked values, encrypted, inside the request's own envelope; it dies with the request.

Only input and output guardrails have the key. AES-256-GCM, the request id as associated data, so a vault
can't be opened under another request.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from baton_common.errors import BatonError

_NONCE_BYTES = 12


class VaultError(BatonError):
    """The vault does not open: wrong key, wrong request, or damaged."""


def new_key() -> str:
    """A key for BATON_VAULT_KEY: 32 random bytes, base64."""
    return base64.b64encode(secrets.token_bytes(32)).decode()


class Vault:
    def __init__(self, key: str) -> None:
        """Raises VaultError unless `key` is 32 bytes in base64."""
        try:
            raw = base64.b64decode(key, validate=True)
            self._cipher = AESGCM(raw)
        except ValueError as error:
            raise VaultError("BATON_VAULT_KEY must be 32 bytes in base64") from error

    def seal(self, request_id: str, values: Mapping[str, str]) -> str:
        """`values` maps placeholder → original text."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        plain = json.dumps(dict(values), ensure_ascii=False).encode()
        return base64.b64encode(nonce + self._cipher.encrypt(nonce, plain, request_id.encode())).decode()

    def open(self, request_id: str, sealed: str) -> dict[str, str]:
        try:
            raw = base64.b64decode(sealed, validate=True)
            plain = self._cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], request_id.encode())
        except (ValueError, InvalidTag) as error:
            raise VaultError("the vault does not open with this key for this request") from error
        return json.loads(plain)
