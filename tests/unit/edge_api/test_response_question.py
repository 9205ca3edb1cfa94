"""What a response that continues another one keeps of how it was asked."""

from __future__ import annotations

import json
from typing import Any

from baton_contracts.envelope import Tenant
from baton_contracts.prompt import Part
from baton_edge_api.exchange import Inside
from baton_edge_api.responses.items import Placed, message_item
from baton_edge_api.responses.reading import read_response

INSIDE = Inside(Tenant(tenant_id="t", team="t", key_id="k"))


def question(**fields: Any) -> Any:
    body = {"model": "m", "input": "And now?", "previous_response_id": f"resp_{'0' * 40}"} | fields
    return read_response(body, strict=False, max_text_chars=1000)


def test_what_is_stored_changes_the_messages_and_nothing_else() -> None:
    asked = question(instructions="Be short.").made_inside(INSIDE).with_chat(cache_ttl=5.0, cache_max_age=0.0)
    before = Placed(message_item("user", "Hello?"), "history")
    whole = asked.with_stored([before, Placed(asked.items[0])], asked.items)
    assert whole.chat.model_copy(update={"messages": asked.chat.messages}) == asked.chat
    assert (whole.chat.priority, whole.chat.cache_ttl, whole.chat.cache_max_age) == (1000, 5.0, 0.0)
    assert [part for message in whole.chat.messages for part in message.parts] == [
        Part(text="Be short."),
        Part(text="Hello?", origin="history"),
        Part(text="And now?"),
    ]


def test_what_is_asked_later_is_what_was_asked() -> None:
    tool = {"type": "function", "name": "add", "parameters": {"type": "object", "b": 1, "a": 2}}
    shape = {"type": "json_schema", "name": "x", "schema": {"type": "object"}}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "input_text", "text": "Hm ☃"}]},
        {"type": "function_call", "call_id": "c", "name": "add", "arguments": '{"a":1}', "id": "own"},
        {"type": "function_call_output", "call_id": "c", "output": "3"},
    ]
    asked = question(
        input=items,
        tools=[tool],
        tool_choice={"type": "function", "name": "add"},
        text={"format": shape},
        temperature=0.5,
        stop=["a"],
        background=True,
        stream=False,
        made_up=1,
    )
    later = read_response(json.loads(asked.as_stream()), strict=False, max_text_chars=1000)
    assert later.chat == asked.chat.model_copy(update={"stream": True})
    assert (later.items, later.wire.background, later.ignored) == (asked.items, True, ("made_up",))
