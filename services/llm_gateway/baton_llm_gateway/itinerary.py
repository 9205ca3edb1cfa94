"""Where one request may go, and where it goes next: models in order, and the targets of each.

Among the targets of a model their weights decide; one that is left alone after failures, or says that it has
had too much, comes last or not at all. What follows a failure of our own replicas is retry_policy's.

the client left                           nowhere
content was sent by our own replicas      behind it, at another one, while retry_policy says so
content was sent by others                nowhere
the client's own fault (4xx)              nowhere
another one may do better (429, 401, …)   at once to another target, else to the next model
seats are short here                      at once to another target, else to the next model
it failed                                 another target, or the same a little later; then the next model
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from baton_common.catalog import Catalog
from baton_common.errors import RequestFailed
from baton_common.routes import Target
from baton_contracts.errors import ErrorBody
from baton_llm_gateway.attempt import Attempt
from baton_llm_gateway.retry_policy import NO_SEAT, after_failure, backoff_seconds
from baton_llm_gateway.target_health import TargetHealth

MAX_PAUSE_SECONDS = 5.0
"""A server that wants to be left alone for longer is not waited for."""
MAX_ATTEMPTS_IN_ALL = 10


@dataclass(frozen=True)
class Leg:
    """One attempt to come; `pause` in seconds before it."""

    model: str
    target: Target
    pause: float = 0.0


class Itinerary:
    """`models` in the order in which they may be tried; `without_replicas`: nobody routes to our own."""

    def __init__(
        self,
        catalog: Catalog,
        health: TargetHealth,
        models: tuple[str, ...],
        *,
        max_attempts: int,
        without_replicas: bool = False,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._targets = {
            model: tuple(
                target
                for target in catalog.route(model).targets
                if not (target.is_local and without_replicas)
            )
            for model in models
        }
        self._health = health
        self._max_attempts = max_attempts
        self._draw = draw
        self._tried: set[str] = set()
        self._failures: dict[str, int] = {}

    def begin(self) -> Leg:
        """Raises RequestFailed if nothing may be asked now."""
        leg = self._first_of(tuple(self._targets))
        if leg is None:
            raise RequestFailed(self._nobody())
        return leg

    def after(self, failed: Attempt, leg: Leg, *, is_gone: bool) -> Leg | None:
        """Where to go on after `failed`, which went to `leg`; None: nowhere."""
        error = failed.error
        assert error is not None, "an attempt without an error needs no other"
        failures = self._failures[leg.model] = self._failures.get(leg.model, 0) + 1
        if is_gone or sum(self._failures.values()) >= MAX_ATTEMPTS_IN_ALL:
            return None
        if failed.has_content:
            return self._behind(failed, error, leg, failures)
        later = self._later_models(leg.model)
        verdict = after_failure(
            error,
            failures=failures,
            max_attempts=self._max_attempts,
            has_content=False,
            can_go_on=True,
            is_gone=False,
            has_other=bool(later),
        )
        if failed.elsewhere or error.code in NO_SEAT:
            return self._pick(leg.model, self._untried(leg.model)) or self._first_of(later)
        if verdict == "retry" and (again := self._again(leg, error, failures)):
            return again
        may_change = error.status >= 500 and (verdict == "retry" or failures >= self._max_attempts)
        return self._first_of(later) if may_change or verdict == "other_model" else None

    def _behind(self, failed: Attempt, error: ErrorBody, leg: Leg, failures: int) -> Leg | None:
        verdict = after_failure(
            error,
            failures=failures,
            max_attempts=self._max_attempts,
            has_content=True,
            can_go_on=failed.can_go_on and leg.target.is_local,
            is_gone=False,
            has_other=False,
        )
        return Leg(leg.model, leg.target, backoff_seconds(failures)) if verdict == "retry" else None

    def _again(self, leg: Leg, error: ErrorBody, failures: int) -> Leg | None:
        pause = backoff_seconds(failures)
        if other := self._pick(leg.model, self._untried(leg.model), pause):
            return other
        pause = max(pause, error.retry_after_seconds or 0.0)
        return self._pick(leg.model, self._targets[leg.model], pause) if pause <= MAX_PAUSE_SECONDS else None

    def _later_models(self, model: str) -> tuple[str, ...]:
        models = tuple(self._targets)
        return models[models.index(model) + 1 :]

    def _untried(self, model: str) -> tuple[Target, ...]:
        return tuple(target for target in self._targets[model] if target.name not in self._tried)

    def _first_of(self, models: tuple[str, ...]) -> Leg | None:
        return next((leg for model in models if (leg := self._pick(model, self._targets[model]))), None)

    def _pick(self, model: str, among: tuple[Target, ...], pause: float = 0.0) -> Leg | None:
        able = [target for target in among if self._health.may_be_tried(target)]
        if not able:
            return None
        rested = [target for target in able if not self._health.is_resting(target)] or able
        wanted = [target for target in rested if target.weight] or rested
        target = wanted[0] if len(wanted) == 1 else self._drawn(wanted)
        self._tried.add(target.name)
        return Leg(model, target, pause)

    def _drawn(self, targets: list[Target]) -> Target:
        mark = self._draw() * sum(target.weight for target in targets)
        for target in targets:
            mark -= target.weight
            if mark < 0:
                return target
        return targets[-1]

    def _nobody(self) -> ErrorBody:
        targets = [target for each in self._targets.values() for target in each]
        model = next(iter(self._targets))
        if not targets:
            text = f"{model} is answered by replicas alone, and this gateway runs without a router."
            return ErrorBody(code="no_ready_replica", message=text, stop="llm_gateway")
        wait = max(0.1, min(self._health.seconds_left(target) for target in targets))
        text = f"Everything that answers for {model} failed lately and is left alone for {wait:.1f} s."
        return ErrorBody(code="no_ready_replica", message=text, stop="llm_gateway", retry_after_seconds=wait)
