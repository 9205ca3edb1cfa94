"""The HTTP form of files and batches: OpenAI's."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, StringConstraints

from baton_contracts.openai_base import HttpModel, at_most

FilePurpose = Literal["batch", "assistants", "fine-tune", "vision", "user_data", "evals"]
StoredPurpose = Literal[FilePurpose, "batch_output"]
BatchEndpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"]
BatchStatus = Literal[
    "validating",
    "in_progress",
    "finalizing",
    "completed",
    "failed",
    "expired",
    "cancelling",
    "cancelled",
]

FILE_PURPOSES: tuple[str, ...] = get_args(FilePurpose)

_MetadataValue = Annotated[str, StringConstraints(max_length=512)]
_MetadataName = Annotated[str, StringConstraints(min_length=1, max_length=64)]


class FileObject(HttpModel):
    id: str
    object: Literal["file"]
    bytes: int = Field(ge=0)
    created_at: int = Field(description="Unix time in seconds.")
    expires_at: int | None = None
    filename: str
    purpose: StoredPurpose
    status: Literal["processed"]


class FileList(HttpModel):
    object: Literal["list"]
    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool


class FileDeleted(HttpModel):
    id: str
    object: Literal["file"]
    deleted: bool


class ExpiresAfter(HttpModel):
    anchor: Literal["created_at"]
    seconds: int = Field(ge=3600, le=2_592_000)


class BatchRequest(HttpModel):
    """POST /v1/batches: run the lines of a file when the engine has room."""

    model_config = ConfigDict(extra="allow")

    input_file_id: str = Field(min_length=1, max_length=64)
    endpoint: BatchEndpoint
    completion_window: Literal["24h"]
    metadata: Annotated[dict[_MetadataName, _MetadataValue] | None, at_most(16)] = Field(
        default=None, max_length=16
    )
    output_expires_after: ExpiresAfter | None = None


class BatchError(HttpModel):
    code: str
    message: str
    param: str | None = None
    line: int | None = Field(default=None, description="Of the input file, from 1.")


class BatchErrors(HttpModel):
    object: Literal["list"]
    data: list[BatchError]


class RequestCounts(HttpModel):
    total: int = Field(ge=0)
    completed: int = Field(ge=0)
    failed: int = Field(ge=0)


class Batch(HttpModel):
    id: str
    object: Literal["batch"]
    endpoint: BatchEndpoint
    errors: BatchErrors | None = Field(description="Why the whole file was refused.")
    input_file_id: str
    completion_window: Literal["24h"]
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int | None
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: RequestCounts
    metadata: dict[str, str] | None


class BatchList(HttpModel):
    object: Literal["list"]
    data: list[Batch]
    first_id: str | None
    last_id: str | None
    has_more: bool
