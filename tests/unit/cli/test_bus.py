"""Waiting for the bus, and refusing one that is too old."""

from __future__ import annotations

import pytest

from baton_cli.errors import StartFailed
from baton_cli.up.bus import check_version, find_server, is_routine, wait_until_listening
from baton_cli.up.ports import is_free
from tests.support.ports import free_port


def test_a_recent_server_is_accepted() -> None:
    check_version(b'INFO {"version":"2.12.0"} \r\n')
    check_version(b'INFO {"version":"3.0.1-beta"} \r\n')


def test_an_old_one_is_refused_with_both_versions() -> None:
    with pytest.raises(StartFailed, match=r"2\.9\.10, and 2\.12 or newer"):
        check_version(b'INFO {"version":"2.9.10"} \r\n')


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n", b"INFO {}\r\n", b"INFO [1]\r\n"])
def test_something_else_on_the_port_is_no_bus(greeting: bytes) -> None:
    with pytest.raises(StartFailed, match="no NATS server"):
        check_version(greeting)


async def test_silence_ends_in_a_sentence() -> None:
    port = free_port()
    with pytest.raises(StartFailed, match=rf"nothing listened on port {port}"):
        await wait_until_listening(port, timeout_seconds=0.05)


async def test_a_real_server_is_found_listening(nats_url: str) -> None:
    port = int(nats_url.rpartition(":")[2])
    await wait_until_listening(port)
    assert not is_free("127.0.0.1", port)


def test_the_installed_server_is_preferred() -> None:
    assert find_server({"PATH": ""}).endswith("/nats-server")


def test_only_warnings_of_the_bus_reach_the_terminal() -> None:
    assert is_routine("[1] [INF] Server is ready")
    assert not is_routine("[1] [ERR] disk full")
