"""An upload: multipart/form-data with one file, bounded in bytes and time, on disk while it is large.

Owns what is refused before a byte is stored. Knows nothing of where files go.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any, cast

from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.types import Receive, Scope

from baton_common.errors import RequestFailed
from baton_contracts.openai_batches import FILE_PURPOSES, FilePurpose
from baton_edge_api.body import body_pieces
from baton_edge_api.exchange import header
from baton_edge_api.refusals import bad_value, missing

_FORM_BYTES = 64 * 1024
"""That the form may take around the file."""
_FIELD_BYTES = 8 * 1024
_KNOWN = ("purpose", "file", "expires_after[anchor]", "expires_after[seconds]")
_SHORTEST, _LONGEST = 3600, 2_592_000


@dataclass(frozen=True)
class Upload:
    filename: str
    purpose: FilePurpose
    expires_after: int | None
    """Seconds."""
    num_bytes: int
    content: IO[bytes]


@dataclass(frozen=True)
class UploadLimits:
    file_bytes: int
    seconds: float
    piece_seconds: float
    strict: bool


@asynccontextmanager
async def upload(scope: Scope, receive: Receive, limits: UploadLimits) -> AsyncGenerator[Upload, None]:
    """Its content is open within the block. Raises RequestFailed or ClientGone."""
    if not (header(scope, b"content-type") or "").lower().startswith("multipart/form-data"):
        text = "Send the file as multipart/form-data with the fields purpose and file."
        raise RequestFailed.because("invalid_request", text)
    pieces = body_pieces(
        scope,
        receive,
        limit=limits.file_bytes + _FORM_BYTES,
        seconds=limits.seconds,
        piece_seconds=limits.piece_seconds,
    )
    parser = MultiPartParser(
        Headers(scope=scope), pieces, max_files=1, max_fields=len(_KNOWN) + 12, max_part_size=_FIELD_BYTES
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise RequestFailed.because("invalid_request", f"The form can't be read: {error.message}") from None
    try:
        yield _read(form, limits)
    finally:
        await form.close()


def _read(form: FormData, limits: UploadLimits) -> Upload:
    if limits.strict and (unknown := [name for name in form if name not in _KNOWN]):
        name = unknown[0][:64]
        raise RequestFailed.because("unknown_parameter", f"Unknown parameter: {name!r}.", param=name)
    file = form.get("file")
    if not isinstance(file, UploadFile):
        raise missing("file", "give a file, with its name.")
    purpose = form.get("purpose")
    if purpose is None:
        raise missing("purpose", f"is missing. It is one of {', '.join(FILE_PURPOSES)}.")
    if purpose not in FILE_PURPOSES:
        raise bad_value("purpose", f"must be one of {', '.join(FILE_PURPOSES)}.")
    size = file.size or 0
    if size > limits.file_bytes:
        text = f"The file is larger than {limits.file_bytes} bytes. Split it."
        raise RequestFailed.because("request_too_large", text, param="file")
    name = _plain_name(file.filename or "")
    return Upload(name, cast("FilePurpose", purpose), _expiry(form), size, cast("Any", file.file))


def _expiry(form: FormData) -> int | None:
    anchor, seconds = form.get("expires_after[anchor]"), form.get("expires_after[seconds]")
    if anchor is None and seconds is None:
        return None
    if anchor != "created_at":
        raise bad_value("expires_after", "its anchor must be created_at.")
    if not isinstance(seconds, str) or not seconds.isascii() or not seconds.isdigit() or len(seconds) > 9:
        raise bad_value("expires_after", "its seconds must be a whole number.")
    if not _SHORTEST <= int(seconds) <= _LONGEST:
        raise bad_value("expires_after", f"its seconds must be from {_SHORTEST} to {_LONGEST}.")
    return int(seconds)


def _plain_name(name: str) -> str:
    """The last part of a path, without control characters: it comes back in a header."""
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    plain = "".join(char for char in last if char.isprintable())[:255]
    return plain or "file"
