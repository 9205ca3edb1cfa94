"""Responses of openai-python: each object and event judged by its own published models, strictly."""

from __future__ import annotations

import json
from typing import Any

import httpx
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": name,
        "description": f"Does {name}.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        "strict": True,
    }
    for name in ("add", "weather")
]


def judged(response: dict[str, Any]) -> dict[str, Any]:
    """The same object; raises if it is none of OpenAI's."""
    Response.model_validate(response, strict=True)
    return response


def judged_event(event: dict[str, Any]) -> dict[str, Any]:
    """The same event; raises if it is none of OpenAI's."""
    _EVENT.validate_python(event, strict=True)
    return event


def events_of(body: str) -> list[dict[str, Any]]:
    """Of a whole stream, each judged: `event:` says the type, numbers count from 0, the order is right."""
    events: list[dict[str, Any]] = []
    for block in body.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if not lines:
            continue
        named, data = lines
        event = json.loads(data.removeprefix("data: "))
        assert named == f"event: {event['type']}"
        assert event["sequence_number"] == len(events)
        events.append(judged_event(event))
    _check_order(events)
    return events


def _check_order(events: list[dict[str, Any]]) -> None:
    types = [event["type"] for event in events]
    assert types[:2] == ["response.created", "response.in_progress"]
    assert types[-1] in ("response.completed", "response.incomplete", "response.failed")
    grown: dict[int, str] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in events[2:-1]:
        kind, index = event["type"], event.get("output_index")
        if kind == "response.output_item.added":
            assert index == len(grown), "items are numbered as they come"
            grown[index] = ""
        elif kind.endswith(".delta"):
            assert index not in items
            grown[index] += event["delta"]
        elif kind in ("response.output_text.done", "response.reasoning_text.done"):
            assert event["text"] == grown[index]
        elif kind == "response.function_call_arguments.done":
            assert event["arguments"] == grown[index]
        elif kind == "response.output_item.done":
            items[index] = event["item"]
    if types[-1] != "response.failed":
        assert [items[index] for index in sorted(items)] == events[-1]["response"]["output"]


async def streamed(client: httpx.AsyncClient, **body: Any) -> list[dict[str, Any]]:
    answer = await client.post("/v1/responses", json=body | {"stream": True})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    return events_of(answer.text)


async def whole(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await client.post("/v1/responses", json=body)
    assert answer.status_code == 200, answer.text
    return judged(answer.json())


def text_of(response: dict[str, Any]) -> str:
    return "".join(
        part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
    )
