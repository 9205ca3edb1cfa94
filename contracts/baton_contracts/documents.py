"""The contract as documents for other languages: AsyncAPI 3 and a JSON Schema for each message.

`python -m baton_contracts.documents DIR` writes them; a test checks that the committed ones are fresh.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from baton_contracts import CONTRACT_VERSION
from baton_contracts.base import WireModel
from baton_contracts.registry import CHANNELS, Channel

_PARAMETERS = {
    "requestId": "32 lower-case hex digits; the W3C trace id of the request.",
    "replica": "Instance id of an engine worker.",
    "gateway": "Instance id of the gateway that owns the request.",
    "guard": "Instance id of the output guardrails that filter the stream.",
    "edge": "Instance id of the edge that holds the client's connection.",
    "sender": "Instance id of the process that numbered the frames.",
    "model": "Model name, bytes outside [A-Za-z0-9_-] written as =XX.",
    "instance": "Instance id of a process.",
}


def schema_of(message: type[WireModel] | TypeAdapter[Any]) -> dict[str, Any]:
    if isinstance(message, TypeAdapter):
        return message.json_schema()
    return message.model_json_schema()


def message_schemas() -> dict[str, dict[str, Any]]:
    """Name → JSON Schema of every message and answer."""
    schemas: dict[str, dict[str, Any]] = {}
    for channel in CHANNELS:
        schemas[channel.message_name] = schema_of(channel.message)
        if channel.reply:
            schemas[channel.reply.__name__] = schema_of(channel.reply)
    return dict(sorted(schemas.items()))


def _channel_document(channel: Channel) -> dict[str, Any]:
    names = re.findall(r"{(\w+)}", channel.address)
    messages = {channel.message_name: {"$ref": f"#/components/messages/{channel.message_name}"}}
    if channel.reply:
        messages[channel.reply.__name__] = {"$ref": f"#/components/messages/{channel.reply.__name__}"}
    return {
        "address": channel.address,
        "description": f"{channel.kind}: {', '.join(channel.senders)} → {', '.join(channel.receivers)}. "
        + channel.note,
        "parameters": {name: {"description": _PARAMETERS[name]} for name in names},
        "messages": messages,
    }


def _operation(channel: Channel) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "action": "receive",
        "channel": {"$ref": f"#/channels/{channel.name}"},
        "summary": f"{', '.join(channel.receivers)} receive {channel.message_name}.",
        "messages": [{"$ref": f"#/channels/{channel.name}/messages/{channel.message_name}"}],
    }
    if channel.reply:
        operation["reply"] = {
            "address": {"location": "$message.header#/reply", "description": "The NATS reply subject."},
            "messages": [{"$ref": f"#/channels/{channel.name}/messages/{channel.reply.__name__}"}],
            "channel": {"$ref": f"#/channels/{channel.name}"},
        }
    return operation


def asyncapi() -> dict[str, Any]:
    names = message_schemas()
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Baton relay",
            "version": CONTRACT_VERSION,
            "description": "One question through ten stops: all subjects and messages between services.",
            "license": {"name": "Apache-2.0"},
        },
        "servers": {"nats": {"host": "127.0.0.1:4222", "protocol": "nats"}},
        "defaultContentType": "application/json",
        "channels": {channel.name: _channel_document(channel) for channel in CHANNELS},
        "operations": {f"receive_{channel.name}": _operation(channel) for channel in CHANNELS},
        "components": {
            "messages": {name: {"name": name, "payload": {"$ref": f"schemas/{name}.json"}} for name in names}
        },
    }


def documents() -> dict[str, str]:
    """Relative path → content of every generated file."""
    files = {"asyncapi.json": _text(asyncapi())}
    for name, schema in message_schemas().items():
        files[f"schemas/{name}.json"] = _text(schema)
    return files


def _text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


def write(folder: Path) -> None:
    for name, content in documents().items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    write(Path(sys.argv[1]))

__all__ = ["asyncapi", "documents", "message_schemas", "write"]
