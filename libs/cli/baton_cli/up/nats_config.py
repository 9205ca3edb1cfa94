"""The NATS server's configuration: one user a service, each with just its subjects; and their passwords.

Subjects come from the contracts. A reply to a request needs no entry: `allow_responses` lets a user answer
each message that reached it once, which also keeps the server's own books short.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from baton_cli.up.settings import SERVICES
from baton_contracts.permissions import of_service

OPERATOR = "operator"
MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
_RESPONSE_EXPIRES = "15m"
"""Longer than any request may take; an acknowledgement is a response."""


def new_password() -> str:
    """Digits and letters only: as the next word of a command line it must not look like an option."""
    return secrets.token_hex(24)


def new_passwords() -> dict[str, str]:
    """By user."""
    return {user: new_password() for user in (*SERVICES, OPERATOR)}


def render_nats_config(
    *,
    port: int,
    store: Path,
    passwords: Mapping[str, str],
    host: str = "127.0.0.1",
    monitor_port: int | None = None,
) -> str:
    """`passwords` by user: every service and the operator. `monitor_port`: health by HTTP, on loop-back."""
    users = [_service_user(service, passwords[service]) for service in SERVICES]
    users.append(_user(OPERATOR, passwords[OPERATOR], publish=(">",), subscribe=(">",), answers=False))
    return "\n".join(
        (
            "# Written by `baton up` or `baton cluster prepare` at each start. Holds passwords.",
            "server_name: baton",
            f"host: {host}",
            f"port: {port}",
            *((f'http: "127.0.0.1:{monitor_port}"',) if monitor_port else ()),
            "logtime: false",
            f"max_payload: {MAX_PAYLOAD_BYTES}",
            "jetstream {",
            f"  store_dir: {_quoted(str(store))}",
            "  max_memory_store: 256MB",
            "  max_file_store: 8GB",
            "}",
            "authorization {",
            "  users: [",
            *users,
            "  ]",
            "}",
            "",
        )
    )


def _service_user(service: str, password: str) -> str:
    permissions = of_service(service)  # pyright: ignore[reportArgumentType]  # one of SERVICES
    return _user(service, password, permissions.publish, permissions.subscribe, answers=True)


def _user(
    name: str, password: str, publish: Iterable[str], subscribe: Iterable[str], *, answers: bool
) -> str:
    responses = f'\n      allow_responses: {{max: 1, expires: "{_RESPONSE_EXPIRES}"}}' if answers else ""
    return (
        f"    {{user: {_quoted(name)}, password: {_quoted(password)}, permissions: {{\n"
        f"      publish: {{allow: {_listed(publish)}}}\n"
        f"      subscribe: {{allow: {_listed(subscribe)}}}{responses}\n"
        "    }}"
    )


def _listed(subjects: Iterable[str]) -> str:
    return "[" + ", ".join(_quoted(subject) for subject in subjects) + "]"


def _quoted(text: str) -> str:
    """JSON strings are strings of the configuration language too."""
    return json.dumps(text)
