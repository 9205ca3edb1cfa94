"""What `baton up` shows: log lines, waits, readiness, the result."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import shlex
from pathlib import Path

import httpx
import pytest

from baton_cli.up.banner import banner, curl_line, model_without_replicas
from baton_cli.up.console import PatientConsole, UpConsole
from baton_cli.up.ready import Readiness, ReadinessProbe
from baton_common.catalog import load_catalog, parse_catalog


class Deaf(io.StringIO):
    """A terminal that went away."""

    def __init__(self, error: OSError) -> None:
        super().__init__()
        self.error = error

    def write(self, text: str) -> int:
        raise self.error


def shown(out: io.StringIO, logs: Path) -> UpConsole:
    return UpConsole(
        PatientConsole(file=out, width=200, force_terminal=False), logs, clock=iter([0.0, 1.5]).__next__
    )


def test_lines_carry_their_process_and_go_to_its_file(tmp_path: Path) -> None:
    out = io.StringIO()
    console = shown(out, tmp_path)
    console.log("edge_api", "listening [bold]on[/bold] :8080")
    console.log("engine_worker:smollm2-135m", "loaded")
    console.log("nats_server", "[INF] routine", quiet=True)
    console.say("ready")
    console.close()
    assert out.getvalue().splitlines() == [
        "edge_api           │ listening [bold]on[/bold] :8080",
        "smollm2-135m       │ loaded",
        "baton              │ ready",
    ]
    assert (tmp_path / "edge_api.log").read_text().endswith(" listening [bold]on[/bold] :8080\n")
    assert (tmp_path / "engine_worker-smollm2-135m.log").read_text().endswith(" loaded\n")
    assert (tmp_path / "nats_server.log").read_text().endswith(" [INF] routine\n")


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(errno.EIO, "Input/output error")])
def test_a_terminal_that_went_away_does_not_stop_the_log(tmp_path: Path, error: OSError) -> None:
    console = shown(Deaf(error), tmp_path)
    console.log("edge_api", "one")
    console.say("two")
    console.close()
    assert (tmp_path / "edge_api.log").read_text().endswith(" one\n")


async def test_a_wait_ends_with_its_time(tmp_path: Path) -> None:
    out = io.StringIO()
    async with shown(out, tmp_path).waiting("the bus"):
        await asyncio.sleep(0)
    assert out.getvalue() == "baton              │ the bus: ready after 1.5 s\n"


async def test_a_wait_that_fails_claims_nothing(tmp_path: Path) -> None:
    out = io.StringIO()
    with pytest.raises(RuntimeError):
        async with shown(out, tmp_path).waiting("the bus"):
            raise RuntimeError
    assert out.getvalue() == ""


@pytest.mark.parametrize(
    ("answer", "readiness"),
    [
        (httpx.Response(200, json={"missing": []}), Readiness(True, True, "")),
        (
            httpx.Response(503, json={"missing": ["embedder", "keys"], "error": {"message": "no"}}),
            Readiness(False, True, "missing embedder, keys"),
        ),
        (httpx.Response(503, json={"error": {"message": "draining"}}), Readiness(False, True, "draining")),
        (httpx.Response(502, text="bad gateway\n"), Readiness(False, True, "bad gateway")),
        (httpx.Response(503, json=[1]), Readiness(False, True, "")),
    ],
)
async def test_readiness_is_what_the_edge_says(answer: httpx.Response, readiness: Readiness) -> None:
    probe = ReadinessProbe("http://edge", httpx.MockTransport(lambda _: answer))
    assert await probe.wait(enough=True) == readiness
    await probe.close()


async def test_an_edge_that_does_not_answer_yet_is_not_ready() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    probe = ReadinessProbe("http://edge", httpx.MockTransport(refuse))
    assert await probe.ask() == Readiness(False, False, "edge_api does not answer yet")
    await probe.close()


def test_the_curl_line_survives_the_shell() -> None:
    words = shlex.split(curl_line("http://127.0.0.1:8080", "sk-key'with\"quotes"))
    assert words[:3] == ["curl", "-N", "http://127.0.0.1:8080/v1/chat/completions"]
    assert words[4] == "Authorization: Bearer sk-key'with\"quotes"
    assert json.loads(words[-1])["stream"] is True
    assert "-k" not in words
    assert "-k" in shlex.split(curl_line("https://127.0.0.1:8080", "k"))


def test_a_plain_gateway_shows_a_model_that_it_can_ask_or_where_to_name_one() -> None:
    ready = Readiness(True, True, "")
    assert model_without_replicas(load_catalog()) is None
    assert any("catalog.toml" in line for line in banner("http://x", "k", 2.5, ready, None))
    assert not any("curl" in line for line in banner("http://x", "k", 2.5, ready, None))
    theirs = """
        [models.theirs]
        context_length = 1000
        [[models.theirs.targets]]
        base_url = "http://10.0.0.5:8000/v1"
    """
    assert model_without_replicas(parse_catalog(theirs, load_catalog())) == "theirs"
    (line,) = [line for line in banner("http://x", "k", 2.5, ready, "theirs") if "curl" in line]
    assert json.loads(shlex.split(line)[-1])["model"] == "theirs"


def test_the_result_does_not_claim_more_than_there_is() -> None:
    assert "Baton is ready (2.5 s)" in banner("http://x", "k", 2.5, Readiness(True, True, ""))
    part = banner("http://x", "k", 2.5, Readiness(False, True, "missing engine_worker"))
    assert "Baton runs in part: missing engine_worker" in part
