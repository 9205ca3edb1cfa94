"""`baton traces`, `baton top` and `baton usage`: what they ask of the edge, and what they make of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from rich.table import Table
from typer.testing import CliRunner

from baton_cli import edge_client
from baton_cli.app import app
from baton_cli.edge_client import EdgeAddress, EdgeClient
from baton_cli.trace_table import by_model, models_table, percentile, replicas_table, traces_table
from baton_contracts.heartbeats import ReplicaHeartbeat

T0 = 1_796_000_000.0


def traced(number: int, **changes: Any) -> dict[str, Any]:
    summary = {
        "status": "ok",
        "started_at": T0 + number,
        "total_ms": 100.0 * number,
        "ttft_ms": 10.0 * number,
        "tpot_ms": None,
        "model": "small",
        "completion_tokens": 7,
        "error": None,
        "error_stop": None,
        "stop_ms": {"2": 1.0, "5": 3.0, "7": 2.0 * number, "9": 999.0},
    }
    return {"request_id": f"{number:032x}", "summary": summary | changes}


class Edge:
    """Pages of traces, newest first; the last of each is on the next page as well."""

    def __init__(self, num_traces: int, page: int) -> None:
        self.asked: list[dict[str, str]] = []
        self._all = [traced(number) for number in range(num_traces, 0, -1)]
        self._page = page

    def __call__(self, request: httpx.Request) -> httpx.Response:
        asked = dict(request.url.params)
        self.asked.append(asked)
        first = int(asked.get("page", 0))
        last = first + self._page
        more = str(last - 1) if last < len(self._all) else None
        return httpx.Response(200, text=json.dumps({"data": self._all[first:last], "next_page": more}))


def run(monkeypatch: pytest.MonkeyPatch, edge: Edge, *typed: str) -> str:
    for module in ("traces", "top", "usage"):
        monkeypatch.setattr(
            f"baton_cli.commands.{module}.connect",
            lambda *_: EdgeClient(EdgeAddress("http://edge", "k"), httpx.MockTransport(edge)),
        )
    found = CliRunner().invoke(app, list(typed), catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.stdout


def cells(table: Table) -> list[list[str]]:
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return [list(row) for row in zip(*columns, strict=True)]


def test_pages_are_read_until_there_are_enough_and_nothing_comes_twice() -> None:
    edge = Edge(10, page=4)
    client = EdgeClient(EdgeAddress("http://edge", "k"), httpx.MockTransport(edge))
    assert [int(one["request_id"], 16) for one in client.traces({"status": "error"}, 6)] == [
        10,
        9,
        8,
        7,
        6,
        5,
    ]
    assert edge.asked == [{"status": "error", "limit": "6"}, {"status": "error", "limit": "6", "page": "3"}]
    assert len(client.traces({}, 1000)) == 10
    assert edge.asked[-1]["limit"] == str(edge_client._TRACES_OF_PAGE)  # pyright: ignore[reportPrivateUsage]
    client.close()


def test_what_failed_yesterday_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge(3, page=10)
    told = run(
        monkeypatch, edge, "traces", "--failed", "--since", "2026-11-29", "--until", "2026-11-30", "--json"
    )
    assert edge.asked == [
        {"since": "1795910400", "until": "1795996800", "status": "error", "limit": "20"},
    ]
    assert [one["request_id"][-1] for one in json.loads(told)["data"]] == ["3", "2", "1"]


def test_the_slowest_of_many_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge(250, page=100)
    told = run(monkeypatch, edge, "traces", "--slowest", "--limit", "2", "--json")
    assert len(edge.asked) == 3
    assert [one["summary"]["total_ms"] for one in json.loads(told)["data"]] == [25_000.0, 24_900.0]


def test_a_row_says_how_a_request_ended_where_and_what_took_longest() -> None:
    refused = traced(9, status="error", error="queue_full", error_stop="inference_router", model=None)
    first, second = cells(traces_table([refused, traced(20)]))
    assert [first[0], *first[2:]] == [
        f"{9:032x}",
        "error: queue_full at inference_router",
        *("", "90.0 ms", "", "900.0 ms", "7", "7 inference engine, 18.0 ms"),
    ]
    assert second[2:] == ["ok", "small", "200.0 ms", "", "2.00 s", "7", "7 inference engine, 40.0 ms"]


def test_by_model_the_busiest_comes_first() -> None:
    traces = [traced(number) for number in range(1, 101)]
    traces += [traced(1, model=None, status="error", ttft_ms=None, stop_ms={})]
    small, none = by_model(traces)
    assert (small["model"], small["requests"], small["failed"]) == ("small", 100, 0)
    assert small["ttft_ms"] == {"p50": 500.0, "p95": 950.0}
    assert small["tpot_ms"] is None
    assert small["stop_ms"]["7"] == 101.0
    assert (none["model"], none["requests"], none["failed"], none["ttft_ms"]) == ("", 1, 1, None)
    rows = cells(models_table([small, none]))
    assert rows[0] == [
        *("small", "100", "0", "500.0 ms", "950.0 ms", "", "", "5.00 s", "9.50 s"),
        "7 inference engine, 101.0 ms",
    ]
    assert rows[1][0] == "none was reached"


@pytest.mark.parametrize(("percent", "value"), [(1, 1), (50, 2), (51, 3), (95, 4), (100, 4)])
def test_percentiles_are_values_that_were_measured(percent: int, value: float) -> None:
    assert percentile([1, 2, 3, 4], percent) == value


def test_replicas_are_shown_by_model() -> None:
    beat = ReplicaHeartbeat(
        replica="e-1", model="small", state="ready", sent_at=T0, num_running=3, max_running=8, kv_usage=0.25
    )
    other = beat.model_copy(update={"replica": "e-0", "model": "large", "tokens_per_second": 12.4})
    assert cells(replicas_table([beat, other])) == [
        ["e-0", "large", "ready", "3 of 8", "0", "25%", "12"],
        ["e-1", "small", "ready", "3 of 8", "0", "25%", "0"],
    ]


def test_top_does_without_the_bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("BATON_HOME", str(tmp_path))
    monkeypatch.delenv("BATON_NATS_URL", raising=False)
    told = json.loads(run(monkeypatch, Edge(5, page=100), "top", "--json"))
    assert [(row["model"], row["requests"]) for row in told["models"]] == [("small", 5)]
    assert told["replicas"] == []


def test_what_a_team_cost_this_month_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = Edge(0, page=1)
    run(monkeypatch, edge, "usage", "--by", "model,key", "--team", "ops", "--since", "2026-11-01", "--json")
    assert edge.asked == [{"by": "model,key", "since": "1793491200", "team": "ops"}]
    run(monkeypatch, edge, "usage", "--key-id", "k1", "--until", "1796000000", "--json")
    assert edge.asked[1].keys() == {"by", "since", "until", "key_id"}
