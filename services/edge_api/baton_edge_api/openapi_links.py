"""Links of the OpenAPI document: which answer names what another path is asked with."""

from __future__ import annotations

from typing import Any

_OWN_ID = "$response.body#/id"
_LINKS: dict[str, dict[str, dict[str, str]]] = {
    "createChatCompletion": {
        "getTrace": {"request_id": "$response.header.x-request-id"},
        "getConversation": {"conversation_id": "$response.header.x-conversation-id"},
        "getUsage": {"request_id": "$response.header.x-request-id"},
    },
    "createResponse": {
        name: {"response_id": _OWN_ID}
        for name in ("getResponse", "deleteResponse", "cancelResponse", "listInputItems")
    },
    "createFile": {name: {"file_id": _OWN_ID} for name in ("getFile", "deleteFile", "getFileContent")},
    "createBatch": {name: {"batch_id": _OWN_ID} for name in ("getBatch", "cancelBatch")},
    "listModels": {"getModel": {"name": "$response.body#/data/0/id"}},
    "addDocument": {
        name: {"source": "$request.body#/source"} for name in ("removeDocument", "removeDocumentByPath")
    },
}


def link(paths: dict[str, Any]) -> None:
    """Adds them to the operations' good answers, in place."""
    for methods in paths.values():
        for operation in methods.values():
            if links := _LINKS.get(operation["operationId"]):
                operation["responses"]["200"]["links"] = {
                    name: {"operationId": name, "parameters": parameters}
                    for name, parameters in links.items()
                }
