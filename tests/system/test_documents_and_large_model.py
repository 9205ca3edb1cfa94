"""The line that `make up` prints, run as it stands: both models, an answer from the documents, ten stops."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.whole_system import has_model
from tests.system.live_system import LARGE, LiveSystem

TRIES = 3
GAP_MS = 1.0

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not has_model(LARGE), reason=f"{LARGE} is not pulled (`baton models pull --defaults`)"
    ),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveSystem]:
    system = LiveSystem(tmp_path_factory.mktemp("both") / "home")
    try:
        system.start(seconds=400)
        yield system
        system.stop()
    finally:
        system.kill()


def curl(line: str) -> tuple[str, str]:
    """Head and body."""
    done = subprocess.run(
        [*shlex.split(line), "-sS", "-i", "--noproxy", "*", "--max-time", "240"],
        capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    head, _, body = done.stdout.partition("\n\n")
    return head, body


def test_the_printed_line(both: LiveSystem) -> None:
    line = re.findall(r"^\s+Try\s+(curl .*)$", both.log, re.MULTILINE)[-1]
    traces: list[dict[str, Any]] = []
    for _ in range(TRIES):
        head, body = curl(line.replace('"stream"', '"temperature": 0, "stream"') if traces else line)
        assert head.startswith("HTTP/1.1 200")
        assert body.rstrip().endswith("data: [DONE]")
        text = "".join(re.findall(r'"content":"((?:[^"\\]|\\.)*)"', body))
        assert "[1]" in text
        assert "503" in body
        assert "error-503.md" in body
        assert f"x-baton-model: {LARGE}" in head
        request_id = re.search(r"x-request-id: ([0-9a-f]{32})", head)
        assert request_id
        traces.append(both.trace(request_id[1], status="ok"))
        if traces[-1]["summary"]["unexplained_gap_ms"] <= GAP_MS:
            break
    summary = traces[-1]["summary"]
    assert summary["stops"] == list(range(1, 11))
    assert summary["unexplained_gap_ms"] <= GAP_MS, [trace["summary"] for trace in traces]
    shown = both.cli("trace", traces[-1]["request_id"])
    assert shown.returncode == 0
    for stop in range(1, 11):
        assert re.search(rf"^\W*{stop}\b", shown.stdout, re.MULTILINE), shown.stdout


def test_asked_from_the_terminal(both: LiveSystem) -> None:
    done = both.cli("ask", "Why is my API returning a 503?", seconds=240)
    assert done.returncode == 0, done.stderr
    assert "503" in done.stdout
    said = done.stdout + done.stderr
    assert re.search(r"[0-9a-f]{32}", said)
    assert "TTFT" in said
    assert "TPOT" in said
