"""The spans that the edge makes of one request: stops 1 (app), 2 (API gateway) and 9 (stream back).

Owns their names and how they join: each begins where the one before ended. Sent after the last byte.
"""

from __future__ import annotations

from baton_common.node import Node
from baton_common.tracing import SpanRecorder, new_span_id
from baton_contracts.errors import ErrorBody
from baton_contracts.spans import AttributeValue

APP, GATEWAY, STREAM_BACK = 1, 2, 9


class RequestTrace:
    """Times are Unix seconds. `root_id` is the span that the next stop hangs its own on."""

    def __init__(self, node: Node, started: float, parent: str | None) -> None:
        self._node = node
        self._started = started
        self._spans = SpanRecorder(node.service, node.instance, GATEWAY, node.clock, parent)
        self._app_id = new_span_id()
        self._back_id = new_span_id()
        self._body_read: float | None = None
        self._admitted: float | None = None
        self._handed_on: float | None = None
        self._prologue: float | None = None
        self.attributes: dict[str, AttributeValue] = {}
        """Of the stop's own span at stop 9."""

    @property
    def root_id(self) -> str:
        return self._spans.root_id

    def body_read(self, num_bytes: int) -> None:
        self._body_read = now = self._node.clock.wall()
        self._spans.add(
            "request",
            self._started,
            now,
            stop=APP,
            span_id=self._app_id,
            parent=self._spans.parent,
            attributes={"bytes": num_bytes},
        )

    def admitted(self, **attributes: AttributeValue) -> None:
        assert self._body_read
        self._admitted = now = self._node.clock.wall()
        self._spans.add("admit", self._body_read, now, attributes=attributes)

    def handed_on(self, instance: str) -> None:
        assert self._admitted
        self._handed_on = now = self._node.clock.wall()
        self._spans.add("hand_on", self._admitted, now, attributes={"instance": instance})

    def prologue(self) -> None:
        self._prologue = self._node.clock.wall()

    def span(self, name: str, start: float, **attributes: AttributeValue) -> None:
        """A part of stop 9 that began at `start` and ends now."""
        end = self._node.clock.wall()
        self._spans.add(name, start, end, stop=STREAM_BACK, parent=self._back_id, attributes=attributes)

    def wall(self) -> float:
        return self._node.clock.wall()

    def failed(self, error: ErrorBody) -> None:
        self.attributes["error"] = error.code
        self.attributes["error_stop"] = error.stop or self._node.service

    async def close(self, request_id: str, tenant_id: str, *, status: str, last_byte: float) -> None:
        """Adds the stops' own spans and sends all."""
        if self._body_read is None:
            return
        spans, parent = self._spans, self._app_id
        gateway_end = self._handed_on or last_byte
        failed_at_gateway = status != "ok" and self._handed_on is None
        spans.add(
            "handle",
            self._body_read,
            gateway_end,
            span_id=spans.root_id,
            parent=parent,
            status=status if failed_at_gateway else "ok",
            attributes=self.attributes if failed_at_gateway else {},
        )
        if self._handed_on is not None:
            name, start = ("stream", self._prologue) if self._prologue else ("wait", self._handed_on)
            spans.add(
                name,
                start,
                last_byte,
                stop=STREAM_BACK,
                status=status,
                span_id=self._back_id,
                parent=parent,
                attributes=self.attributes,
            )
        await self._node.span_post.send(spans.batch(request_id, tenant_id))
