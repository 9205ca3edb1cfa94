"""Spans of one request in one process: collected while it is held, sent as one batch at the end."""

from __future__ import annotations

import random
from types import TracebackType

from baton_common.clock import Clock
from baton_contracts.spans import AttributeValue, Span, SpanBatch
from baton_contracts.subjects import Service


def new_span_id() -> str:
    """Told apart from others of its trace, not kept from anybody: no call of the system for it."""
    return f"{random.getrandbits(64) or 1:016x}"


class OpenSpan:
    """A span while its block is measured; attributes may be added, and its status said. An exception that
    leaves the block marks it as failed."""

    __slots__ = ("_name", "_recorder", "_start", "_stop", "attributes", "status")

    def __init__(
        self, recorder: SpanRecorder, name: str, stop: int | None, attributes: dict[str, AttributeValue]
    ) -> None:
        self._recorder = recorder
        self._name = name
        self._stop = stop
        self._start = 0.0
        self.attributes = attributes
        self.status = "ok"

    def set(self, **attributes: AttributeValue) -> None:
        self.attributes.update(attributes)

    def __enter__(self) -> OpenSpan:
        self._start = self._recorder.clock.wall()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = "error" if isinstance(error, Exception) else "cancelled"
        recorder = self._recorder
        recorder.add(
            self._name,
            self._start,
            recorder.clock.wall(),
            stop=self._stop,
            status=failed if error else self.status,
            attributes=self.attributes,
        )


class SpanRecorder:
    """All spans that this process makes for one request. `stop` is the stop's number (spans.STOPS)."""

    def __init__(
        self, service: Service, instance: str, stop: int, clock: Clock, parent: str | None = None
    ) -> None:
        self._service: Service = service
        self._instance = instance
        self._stop = stop
        self.clock = clock
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

    def span(self, name: str, *, stop: int | None = None, **attributes: AttributeValue) -> OpenSpan:
        """To be entered at once; measures the block."""
        return OpenSpan(self, name, stop, attributes)

    def close(self, name: str, start: float, *, status: str, attributes: dict[str, AttributeValue]) -> None:
        """Adds this stop's own span, the parent of the others."""
        end = self.clock.wall()
        self.add(
            name, start, end, status=status, span_id=self.root_id, parent=self.parent, attributes=attributes
        )
        own = self.spans[-1]
        if own.parent_span_id == own.span_id:
            self.spans[-1] = own.model_copy(update={"parent_span_id": None})

    def batch(self, request_id: str, tenant_id: str) -> SpanBatch:
        return SpanBatch(request_id=request_id, tenant_id=tenant_id, spans=tuple(self.spans))
