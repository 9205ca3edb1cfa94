"""`baton ingest`: files and folders into the document store, one by one, with what became of each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from baton_cli.documents import Document, Outcome, find_documents, outcome_of
from baton_cli.edge_client import EdgeClient, connect
from baton_cli.errors import CliError, EdgeUnreachable
from baton_cli.terminal import KeyOption, UrlOption, console


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Files or folders: text, Markdown, HTML.")],
    url: UrlOption = None,
    key: KeyOption = None,
) -> None:
    """Add documents. The same file again adds nothing; an edited one replaces only what changed."""
    documents = [document for path in paths for document in find_documents(path)]
    if not documents:
        raise CliError("No documents there: .txt, .md and .html files are taken.")
    client = connect(url, key)
    outcomes: Counter[Outcome] = Counter()
    try:
        shown = track(documents, "Ingesting", console=console, disable=not console.is_terminal)
        for document in shown:
            outcome, line = ingest_one(client, document)
            outcomes[outcome] += 1
            console.print(line, soft_wrap=True)
    finally:
        client.close()
    console.print(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))
    if outcomes["failed"]:
        raise typer.Exit(1)


def ingest_one(client: EdgeClient, document: Document) -> tuple[Outcome, str]:
    """One bad file does not stop the others; an edge that is gone does."""
    try:
        text = document.read()
        if not text.strip():
            raise CliError("is empty")  # noqa: TRY301 - the same line for the person
        counts = client.put_document(document.source, document.media_type, text)
    except EdgeUnreachable:
        raise
    except CliError as error:
        return "failed", f"failed     {document.source}: {error}"
    outcome = outcome_of(counts)
    num_chunks = counts.get("chunks", 0)
    noun = "chunk" if num_chunks == 1 else "chunks"
    return outcome, f"{outcome:<10} {document.source} ({num_chunks} {noun})"
