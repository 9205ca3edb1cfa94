"""The paths of files and batches in the OpenAPI document."""

from __future__ import annotations

from typing import Any, get_args

from baton_contracts import openai_batches
from baton_edge_api.openapi_parts import (
    READS_BODY,
    answer,
    body,
    content,
    operation,
    order,
    page_limit,
    parameter,
)

BATCH_MODELS = (
    openai_batches.FileObject,
    openai_batches.FileList,
    openai_batches.FileDeleted,
    openai_batches.BatchRequest,
    openai_batches.Batch,
    openai_batches.BatchList,
)

_UPLOAD: dict[str, Any] = {
    "type": "object",
    "required": ["file", "purpose"],
    "properties": {
        "file": {"type": "string", "format": "binary"},
        "purpose": {"type": "string", "enum": list(openai_batches.FILE_PURPOSES)},
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2_592_000},
    },
    "dependentRequired": {
        "expires_after[anchor]": ["expires_after[seconds]"],
        "expires_after[seconds]": ["expires_after[anchor]"],
    },
}


def _get(
    name: str, summary: str, schema: str, *parameters: dict[str, Any], failures: tuple[int, ...] = ()
) -> dict[str, Any]:
    success = answer("It.", content(schema))
    return operation(name, summary, success, key=True, failures=failures, parameters=list(parameters))


def _files() -> dict[str, Any]:
    file_id = parameter("file_id", "path", "As in the file's `id`.")
    pages = (
        parameter(
            "purpose",
            "query",
            "Only files of this purpose.",
            enum=list(get_args(openai_batches.StoredPurpose)),
        ),
        page_limit(10_000, 10_000),
        order(),
        parameter("after", "query", "The last id of the page before."),
    )
    upload = operation(
        "createFile",
        "Upload a file, such as the lines of a batch.",
        answer("What is known of it.", content("FileObject")),
        key=True,
        failures=READS_BODY,
        requestBody={"required": True, "content": {"multipart/form-data": {"schema": _UPLOAD}}},
    )
    raw = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
    return {
        "/v1/files": {"post": upload, "get": _get("listFiles", "Your files.", "FileList", *pages)},
        "/v1/files/{file_id}": {
            "get": _get("getFile", "What is known of a file.", "FileObject", file_id, failures=(404,)),
            "delete": _get("deleteFile", "Remove a file.", "FileDeleted", file_id, failures=(404,)),
        },
        "/v1/files/{file_id}/content": {
            "get": operation(
                "getFileContent",
                "A file's contents.",
                answer("Its bytes.", raw),
                key=True,
                failures=(404,),
                parameters=[file_id],
            )
        },
    }


def _batches() -> dict[str, Any]:
    batch_id = parameter("batch_id", "path", "As in the batch's `id`.")
    pages = (
        page_limit(100, 20),
        parameter("after", "query", "The last id of the page before."),
    )
    create = operation(
        "createBatch",
        "Run the lines of a file when the engine has room, never ahead of a person.",
        answer("It, not yet begun.", content("Batch")),
        key=True,
        failures=(404, 413, 429),
        requestBody=body("BatchRequest"),
    )
    return {
        "/v1/batches": {"post": create, "get": _get("listBatches", "Your batches.", "BatchList", *pages)},
        "/v1/batches/{batch_id}": {
            "get": _get("getBatch", "A batch and its counts.", "Batch", batch_id, failures=(404,))
        },
        "/v1/batches/{batch_id}/cancel": {
            "post": _get(
                "cancelBatch", "End a batch; what is done is kept.", "Batch", batch_id, failures=(404, 409)
            )
        },
    }


def batch_paths() -> dict[str, Any]:
    return _files() | _batches()
