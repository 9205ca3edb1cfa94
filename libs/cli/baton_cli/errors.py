"""Errors of the command line: each is a sentence for a person, saying what, where and what to do.

CliError
├── DownloadFailed    a model's file could not be fetched
├── DigestMismatch    a fetched file is not the one that the catalog names; it was removed
├── ConversionFailed  the engine's converter refused the file
├── AlreadyRunning    another `baton up` owns this BATON_HOME
├── StartFailed       a process that everything needs could not be started
├── EdgeUnreachable   nothing answers at the edge's URL
└── EdgeRefused       the edge answered with an error object
"""

from __future__ import annotations

_UNAUTHORISED = 401
_ANOTHER_KEY = " Give another with --key or BATON_API_KEY; `baton keys create` makes one."


class CliError(Exception):
    """Printed without a traceback; the command exits with `exit_code`."""

    exit_code = 1


class DownloadFailed(CliError):
    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} could not be fetched: {reason}")
        self.what = what
        self.reason = reason


class DigestMismatch(CliError):
    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(
            f"{file} is not the file that the catalog names: SHA-256 is {found}, expected {expected}. "
            "The file was removed; pull again, and if it stays so, don't use that source."
        )
        self.file = file
        self.expected = expected
        self.found = found


class ConversionFailed(CliError):
    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file} could not be converted: {reason}")


class AlreadyRunning(CliError):
    def __init__(self, home: str, pid: int | None) -> None:
        who = f"process {pid}" if pid else "another process"
        super().__init__(
            f"Baton already runs on {home} ({who}). Stop that one first, or run a second copy beside it: "
            "BATON_HOME=/another/folder BATON_PORT=8090 make up"
        )
        self.pid = pid


class StartFailed(CliError):
    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} could not be started: {reason}")


class EdgeUnreachable(CliError):
    def __init__(self, url: str) -> None:
        super().__init__(
            f"Nothing answers at {url}. Start Baton with `make up`, or name its place with --url."
        )


class EdgeRefused(CliError):
    """`status` is the HTTP status, `code` and `message` those of the OpenAI error object."""

    def __init__(self, status: int, code: str | None, message: str, request_id: str | None = None) -> None:
        told = f" (request {request_id})" if request_id else ""
        hint = _ANOTHER_KEY if status == _UNAUTHORISED else ""
        super().__init__(f"{status} {code or ''}: {message}{hint}{told}".replace(" :", ":"))
        self.status = status
        self.code = code
        self.message = message
