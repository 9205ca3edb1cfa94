"""Spans of one request in one process: collected while it is held, sent as one batch at the end."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from baton_common.clock import Clock
from baton_contracts.spans import AttributeValue, Span, SpanBatch
from baton_contracts.subjects import Service


def new_span_id() -> str:
    """Told apart from others of its trace, not kept from anybody: no call of the system for it."""
    return f"{random.getrandbits(64) or 1:016x}"


@dataclass
class OpenSpan:
    """A span while it is being measured; attributes may be added."""

    span_id: str
    attributes: dict[str, AttributeValue] = field(default_factory=dict[str, AttributeValue])
    status: str = "ok"

    def set(self, **attributes: AttributeValue) -> None:
        self.attributes.update(attributes)


class SpanRecorder:
    """All spans that this process makes for one request. `stop` is the stop's number (spans.STOPS)."""

    def __init__(
        self, service: Service, instance: str, stop: int, clock: Clock, parent: str | None = None
    ) -> None:
        self._service: Service = service
        self._instance = instance
        self._stop = stop
        self._clock = clock
        self.parent = parent
        self.root_id = new_span_id()
        self.spans: list[Span] = []

    def add(
        self,
        name: str,
        start: float,
        end: float,
        *,
        stop: int | None = None,
        status: str = "ok",
        span_id: str | None = None,
        parent: str | None = None,
        attributes: dict[str, AttributeValue] | None = None,
    ) -> None:
        """A span whose times (Unix seconds) are already known. `parent` defaults to this stop's own span."""
        self.spans.append(
            Span(
                span_id=span_id or new_span_id(),
                parent_span_id=parent or self.root_id,
                stop=stop or self._stop,
                service=self._service,
                instance=self._instance,
                name=name,
                start=start,
                duration=max(0.0, end - start),
                status=status,  # pyright: ignore[reportArgumentType]  # checked by pydantic
                attributes=attributes or {},
            )
        )

    @contextmanager
    def span(
        self, name: str, *, stop: int | None = None, **attributes: AttributeValue
    ) -> Generator[OpenSpan, None, None]:
        """Measures the block; an exception that leaves it marks the span as failed."""
        opened = OpenSpan(new_span_id(), dict(attributes))
        start = self._clock.wall()
        try:
            yield opened
        except BaseException as error:
            opened.status = "error" if isinstance(error, Exception) else "cancelled"
            raise
        finally:
            self.add(
                name,
                start,
                self._clock.wall(),
                stop=stop,
                status=opened.status,
                span_id=opened.span_id,
                attributes=opened.attributes,
            )

    def close(self, name: str, start: float, *, status: str, attributes: dict[str, AttributeValue]) -> None:
        """Adds this stop's own span, the parent of the others."""
        end = self._clock.wall()
        self.add(
            name, start, end, status=status, span_id=self.root_id, parent=self.parent, attributes=attributes
        )
        own = self.spans[-1]
        if own.parent_span_id == own.span_id:
            self.spans[-1] = own.model_copy(update={"parent_span_id": None})

    def batch(self, request_id: str, tenant_id: str) -> SpanBatch:
        return SpanBatch(request_id=request_id, tenant_id=tenant_id, spans=tuple(self.spans))
