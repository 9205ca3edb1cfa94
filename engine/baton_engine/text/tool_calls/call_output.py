"""Where grammars put what they find. Owns the numbering of calls and the white space between the parts.

White space between two parts of content stays; around calls, where nothing is left to stand apart, it goes.
"""

from __future__ import annotations

from collections.abc import Callable

from baton_engine.text.tool_calls.events import CallArguments, CallEnd, CallEvent, CallStart, ContentText

NewCallId = Callable[[int], str]
"""The id of the call of this index."""


class CallOutput:
    def __init__(self, new_call_id: NewCallId) -> None:
        self._new_call_id = new_call_id
        self._events: list[CallEvent] = []
        self._space = ""
        self._has_content = False
        self.num_calls = 0

    def content(self, text: str) -> None:
        body = text.rstrip()
        if not body:
            self._space += text
            return
        stands_first = self.num_calls > 0 and not self._has_content
        shown = body.lstrip() if stands_first else self._space + body
        self._space = text[len(body) :]
        self._has_content = True
        self._put(ContentText(shown))

    def start(self, name: str) -> None:
        self._put(CallStart(self.num_calls, self._new_call_id(self.num_calls), name))
        self.num_calls += 1

    def arguments(self, text: str) -> None:
        self._put(CallArguments(self.num_calls - 1, text))

    def end(self) -> None:
        self._put(CallEnd(self.num_calls - 1))

    def finish(self) -> None:
        """White space at the end belongs to the answer only if it has no calls."""
        if self._space and not self.num_calls:
            self._put(ContentText(self._space))
        self._space = ""

    def take(self) -> list[CallEvent]:
        events, self._events = self._events, []
        return events

    def _put(self, event: CallEvent) -> None:
        last = self._events[-1] if self._events else None
        if isinstance(event, ContentText) and isinstance(last, ContentText):
            self._events[-1] = ContentText(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            self._events[-1] = CallArguments(last.index, last.text + event.text)
        else:
            self._events.append(event)
