"""The documents about Baton itself that ship with this package, as ingest queries of the shared tenant."""

from __future__ import annotations

from importlib.resources import files

from baton_contracts.queries import IngestQuery

SOURCE_FOLDER = "knowledge"


def seed_documents(shared_tenant: str) -> list[IngestQuery]:
    """In the order of their names. Sending them again is free: unchanged passages are recognised."""
    folder = files("baton_prompt_builder") / SOURCE_FOLDER
    pages = sorted((page for page in folder.iterdir() if page.name.endswith(".md")), key=lambda p: p.name)
    return [
        IngestQuery(
            tenant_id=shared_tenant,
            source=f"{SOURCE_FOLDER}/{page.name}",
            media_type="text/markdown",
            text=page.read_text(encoding="utf-8"),
        )
        for page in pages
    ]
