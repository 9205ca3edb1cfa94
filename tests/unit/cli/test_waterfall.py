"""A trace read and drawn: order, bars, gaps, totals."""

from __future__ import annotations

from typing import Any

import pytest

from baton_cli.errors import CliError
from baton_cli.trace_view import Gap, parse_trace
from baton_cli.waterfall import bar, totals, waterfall

RID = "0123456789abcdef0123456789abcdef"


def span(
    stop: int,
    service: str,
    name: str,
    start: float,
    duration: float,
    status: str = "ok",
) -> dict[str, Any]:
    return {
        "stop": stop,
        "service": service,
        "name": name,
        "start_ms": start,
        "duration_ms": duration,
        "status": status,
        "attributes": {},
    }


TRACE = {
    "request_id": RID,
    "gaps": [{"start_ms": 9.0, "duration_ms": 1.5}],
    "summary": {
        "total_ms": 100.0,
        "ttft_ms": 41.25,
        "tpot_ms": 9.5,
        "model": "smollm2-135m",
        "replica": "engine_worker-1",
        "prompt_tokens": 30,
        "completion_tokens": 6,
        "finish_reason": "stop",
        "status": 200,
    },
    "spans": [
        span(7, "engine_worker", "decode", 45.0, 45.0),
        span(1, "edge_api", "request", 0.0, 100.0),
        span(7, "engine_worker", "prefill", 10.5, 34.5),
        span(2, "edge_api", "admit", 0.0, 2.0),
        span(3, "prompt_builder", "handle", 2.0, 4.0),
        span(4, "input_guardrails", "handle", 6.0, 1.0),
        span(5, "llm_gateway", "handle", 7.5, 0.5),
        span(6, "inference_router", "handle", 8.5, 0.5, status="error"),
        span(8, "output_guardrails", "window", 89.0, 8.0),
        span(9, "edge_api", "stream", 96.0, 4.0),
    ],
}


def test_spans_come_by_stop_and_then_by_start() -> None:
    trace = parse_trace(TRACE)
    assert [span.stop for span in trace.spans] == [1, 2, 3, 4, 5, 6, 7, 7, 8, 9]
    assert [span.name for span in trace.spans if span.stop == 7] == ["prefill", "decode"]
    assert trace.total_ms == 100.0
    assert trace.missing_stops == (10,)


def test_the_gaps_are_those_that_the_console_found() -> None:
    assert parse_trace(TRACE).gaps == (Gap(9.0, 1.5),)


@pytest.mark.parametrize(
    ("start", "duration", "drawn"),
    [
        (0.0, 100.0, "██████████"),
        (0.0, 50.0, "█████     "),
        (50.0, 50.0, "     █████"),
        (0.0, 5.0, "▌         "),
        (5.0, 5.0, "▐         "),
        (5.0, 10.0, "▐▌        "),
        (42.0, 0.0, "    ▌     "),
        (100.0, 0.0, "         ▐"),
        (90.0, 500.0, "         █"),
    ],
)
def test_bars_stand_where_their_time_was(start: float, duration: float, drawn: str) -> None:
    assert bar(start, duration, 100.0, 10) == drawn


def test_a_trace_without_length_has_empty_bars() -> None:
    assert bar(0.0, 0.0, 0.0, 4) == "    "


def test_the_waterfall_has_a_row_a_span_and_says_what_is_missing() -> None:
    lines = [line.plain for line in waterfall(parse_trace(TRACE), width=100)]
    assert lines[0] == f"Trace {RID}"
    assert lines[1].startswith("    stop               span")
    assert lines[1].rstrip().endswith("ms")
    rows = lines[2:12]
    assert rows[0].startswith(" 1  edge_api           request              ███")
    assert rows[0].endswith("100.00")
    assert rows[5].startswith(" 6  inference_router   handle (error)")
    assert rows[6].startswith(" 7  engine_worker      prefill")
    assert rows[7].startswith("    engine_worker      decode")
    assert {len(row) for row in rows} == {100}
    assert "Gap of 1.5 ms: no stop accounts for 9.0 to 10.5 ms" in lines
    assert "No span of stop 10 (after the answer)" in lines
    assert lines[-1] == (
        "TTFT 41.2 ms · TPOT 9.5 ms · total 100.0 ms · prompt 30 tokens · answer 6 tokens · "
        "model smollm2-135m · on engine_worker-1 · finish stop · status 200"
    )


def test_the_beginning_can_be_enlarged() -> None:
    lines = [line.plain for line in waterfall(parse_trace(TRACE), width=99, until_ms=8.0)]
    assert "8 ms" in lines[1]
    assert [line[:22].split()[-1] for line in lines[2:7]] == [
        "edge_api",
        "edge_api",
        "prompt_builder",
        "input_guardrails",
        "llm_gateway",
    ]
    assert lines[8] == "5 spans begin after 8 ms"
    assert lines[4][45:].split()[0] == "█" * 22  # 2 to 6 of 8 ms: half of 44 columns


def test_unknown_figures_are_left_out() -> None:
    trace = parse_trace({"request_id": RID, "summary": {"ttft_ms": None}, "spans": []})
    assert totals(trace) == "total 0.0 ms"


@pytest.mark.parametrize(
    ("summary", "told"),
    [
        (
            {"status": "error", "error": "queue_full", "error_stop": "inference_router"},
            "total 0.0 ms · status error: queue_full at inference_router",
        ),
        ({"status": "running"}, "total 0.0 ms · status running"),
        ({"status": "ok", "cache": "exact"}, "total 0.0 ms · from the cache, exact · status ok"),
    ],
)
def test_totals_say_what_became_of_it(summary: dict[str, Any], told: str) -> None:
    assert totals(parse_trace({"request_id": RID, "summary": summary, "spans": []})) == told


@pytest.mark.parametrize("body", [{}, {"request_id": RID}, {"request_id": RID, "spans": [{"stop": "x"}]}])
def test_what_is_no_trace_is_said(body: dict[str, Any]) -> None:
    with pytest.raises(CliError, match="not a trace"):
        parse_trace(body)
