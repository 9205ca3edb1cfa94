"""What is stored of a file and of a batch, and how a client sees it.

Owns the states of a batch and what each of them says. Knows nothing of where a record is stored.
"""

from __future__ import annotations

import secrets
from typing import Any, Literal

from baton_contracts.base import WireModel
from baton_contracts.envelope import Tenant
from baton_contracts.openai_batches import BatchEndpoint, BatchStatus, StoredPurpose

ACTIVE: frozenset[BatchStatus] = frozenset({"validating", "in_progress", "finalizing", "cancelling"})
Ending = Literal["completed", "failed", "expired", "cancelled"]


def new_file_id() -> str:
    return f"file-{secrets.token_hex(12)}"


def new_batch_id() -> str:
    return f"batch_{secrets.token_hex(12)}"


class FileRecord(WireModel):
    id: str
    tenant_id: str
    filename: str
    purpose: StoredPurpose
    num_bytes: int
    created_at: int
    expires_at: int | None = None

    def expired(self, now: float) -> bool:
        return self.expires_at is not None and now >= self.expires_at

    def object(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.num_bytes,
            "created_at": self.created_at,
            "expires_at": self.expires_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


class LineProblem(WireModel):
    """Why a file is no batch."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


class BatchRecord(WireModel):
    id: str
    tenant: Tenant
    endpoint: BatchEndpoint
    input_file_id: str
    metadata: dict[str, str] | None = None
    output_seconds: int
    """How long its output files are kept."""
    status: BatchStatus = "validating"
    problems: tuple[LineProblem, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    expires_at: int
    in_progress_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    total: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def is_active(self) -> bool:
        return self.status in ACTIVE

    def now(self, status: BatchStatus, at: float, **more: Any) -> BatchRecord:
        """In that state, which began then."""
        times = {} if status == "validating" else {f"{status}_at": int(at)}
        return self.model_copy(update={"status": status} | times | more)

    def object(self) -> dict[str, Any]:
        fields = self.model_dump(
            mode="json", exclude={"tenant", "output_seconds", "problems", "total", "completed", "failed"}
        )
        problems = [problem.model_dump(mode="json") for problem in self.problems]
        counts = {"total": self.total, "completed": self.completed, "failed": self.failed}
        return fields | {
            "object": "batch",
            "completion_window": "24h",
            "errors": {"object": "list", "data": problems} if problems else None,
            "request_counts": counts,
        }
