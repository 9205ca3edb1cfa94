"""What a span says of its block: how long it took, and how it ended."""

from __future__ import annotations

import pytest

from baton_common.tracing import SpanRecorder
from tests.support.relay import HandClock


def test_a_block_is_measured_and_says_how_it_ended() -> None:
    clock = HandClock(now=1000.0)
    spans = SpanRecorder("prompt_builder", "prompt_builder-1", 3, clock.clock)
    with spans.span("search", policy="auto") as span:
        clock.move(0.5)
        span.set(num_dense=3)
    with spans.span("embed") as span:
        span.set(fallback="words only")
        span.status = "error"
    with pytest.raises(KeyError), spans.span("assemble"):
        raise KeyError
    search, embed, assemble = spans.spans
    assert (search.name, search.start, search.duration, search.status) == ("search", 1000.0, 0.5, "ok")
    assert search.attributes == {"policy": "auto", "num_dense": 3}
    assert (embed.status, embed.attributes) == ("error", {"fallback": "words only"})
    assert assemble.status == "error"
