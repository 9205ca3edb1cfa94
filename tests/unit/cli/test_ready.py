"""Waiting for models: until all serve, bounded, whatever the edge says meanwhile."""

from __future__ import annotations

import httpx

from baton_cli.up.ready import ReadinessProbe


def probe_that_sees(*answers: list[str] | None) -> tuple[ReadinessProbe, list[str]]:
    """Each answer of /v1/models in turn, the last one for ever; None is an error."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["authorization"])
        names = answers[min(len(asked), len(answers)) - 1]
        if names is None:
            return httpx.Response(503, text="not yet")
        return httpx.Response(200, json={"data": [{"id": name} for name in names]})

    return ReadinessProbe("http://edge", httpx.MockTransport(answer)), asked


async def test_it_waits_until_every_model_serves() -> None:
    probe, asked = probe_that_sees(None, ["small"], ["small", "large", "auto"])
    assert await probe.wait_for_models(["small", "large"], "sk-x", seconds=30) == ()
    assert asked == ["Bearer sk-x"] * 3


async def test_it_does_not_wait_for_ever_and_names_the_late_ones() -> None:
    probe, _ = probe_that_sees(["small"])
    assert await probe.wait_for_models(["small", "large"], "sk-x", seconds=0.15) == ("large",)


async def test_without_models_nobody_is_asked() -> None:
    probe, asked = probe_that_sees([])
    assert await probe.wait_for_models([], "sk-x", seconds=30) == ()
    assert asked == []


def probe_of_metrics(*ready: dict[str, int]) -> ReadinessProbe:
    """Each answer of /metrics in turn, the last one for ever: by model how many replicas are ready."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        counts = ready[min(len(asked), len(ready)) - 1]
        lines = [
            f'baton:replica_ready{{model_name="{name}",replica="engine_worker-{number}"}} 1.0'
            for name, count in counts.items()
            for number in range(count)
        ]
        lines.append('baton:replica_ready{model_name="small",replica="engine_worker-9"} 0.0')
        return httpx.Response(200, text="\n".join(lines))

    return ReadinessProbe("http://edge", httpx.MockTransport(answer))


async def test_it_waits_until_every_model_has_all_its_replicas() -> None:
    probe = probe_of_metrics({}, {"small": 2}, {"small": 2, "large": 1})
    assert await probe.wait_for_replicas({"small": 2, "large": 1}, seconds=30) == ()


async def test_replicas_that_are_late_are_named() -> None:
    probe = probe_of_metrics({"small": 1})
    assert await probe.wait_for_replicas({"small": 2}, seconds=0.1) == ("small (1 of 2)",)
