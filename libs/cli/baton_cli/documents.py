"""Files to ingest: which of a folder's files are documents, under which names, and what became of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from baton_cli.errors import CliError

MEDIA_TYPES = {
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
}

Outcome = Literal["added", "unchanged", "replaced", "failed"]


@dataclass(frozen=True)
class Document:
    path: Path
    source: str
    """Its name in the store: the path below the folder that was named, with that folder's own name."""

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[self.path.suffix.lower()]

    def read(self) -> str:
        """Raises CliError for a file that is not UTF-8 text."""
        try:
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise CliError(f"not UTF-8 text (byte {error.start})") from error
        except OSError as error:
            raise CliError(error.strerror or str(error)) from error


def find_documents(path: Path) -> list[Document]:
    """The file itself, or every document below the folder, hidden ones left out. Raises CliError."""
    if path.is_file():
        if path.suffix.lower() not in MEDIA_TYPES:
            raise CliError(f"{path}: only {', '.join(MEDIA_TYPES)} can be ingested.")
        return [Document(path, path.name)]
    if not path.is_dir():
        raise CliError(f"{path} is neither a file nor a folder.")
    root = path.resolve()
    found = [
        file for file in sorted(root.rglob("*")) if file.suffix.lower() in MEDIA_TYPES and file.is_file()
    ]
    return [
        Document(file, f"{root.name}/{file.relative_to(root).as_posix()}")
        for file in found
        if not any(part.startswith(".") for part in file.relative_to(root).parts)
    ]


def outcome_of(counts: dict[str, Any]) -> Outcome:
    """What the edge's counts of chunks mean for the document."""
    if counts.get("removed"):
        return "replaced"
    return "added" if counts.get("added") else "unchanged"
