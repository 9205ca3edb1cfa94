"""Which files are documents, and what became of each."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from baton_cli.commands.ingest import ingest_one
from baton_cli.documents import Document, find_documents, outcome_of
from baton_cli.edge_client import EdgeAddress, EdgeClient
from baton_cli.errors import CliError, EdgeUnreachable


def test_a_folder_gives_its_documents_by_name(tmp_path: Path) -> None:
    root = tmp_path / "handbook"
    for name in ("a.md", "sub/b.HTML", "sub/c.txt", "d.py", ".hidden.md", ".git/e.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("text")
    found = find_documents(root)
    assert [(document.source, document.media_type) for document in found] == [
        ("handbook/a.md", "text/markdown"),
        ("handbook/sub/b.HTML", "text/html"),
        ("handbook/sub/c.txt", "text/plain"),
    ]


def test_one_file_has_its_own_name_and_other_kinds_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    (tmp_path / "a.exe").write_text("x")
    assert find_documents(tmp_path / "a.md")[0].source == "a.md"
    with pytest.raises(CliError, match=r"only \.txt, \.md"):
        find_documents(tmp_path / "a.exe")
    with pytest.raises(CliError, match="neither a file nor a folder"):
        find_documents(tmp_path / "nothing")


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ({"chunks": 3, "added": 3, "removed": 0}, "added"),
        ({"chunks": 3, "added": 0, "removed": 0}, "unchanged"),
        ({"chunks": 3, "added": 1, "removed": 1}, "replaced"),
        ({"chunks": 2, "added": 0, "removed": 1}, "replaced"),
    ],
)
def test_counts_of_chunks_say_what_became_of_a_document(counts: dict[str, int], outcome: str) -> None:
    assert outcome_of(counts) == outcome


def edge(status: int, body: dict[str, object], seen: list[dict[str, str]] | None = None) -> EdgeClient:
    def handler(request: httpx.Request) -> httpx.Response:
        if seen is not None:
            seen.append(json.loads(request.content))
        return httpx.Response(status, json=body)

    return EdgeClient(EdgeAddress("http://edge", "k"), httpx.MockTransport(handler))


def test_a_document_is_sent_with_name_and_kind(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_bytes("\ufeff# Grüße".encode())
    seen: list[dict[str, str]] = []
    outcome, line = ingest_one(edge(200, {"chunks": 2, "added": 2}, seen), Document(file, "docs/a.md"))
    assert (outcome, line) == ("added", "added      docs/a.md (2 chunks)")
    assert seen == [{"source": "docs/a.md", "media_type": "text/markdown", "text": "# Grüße"}]


@pytest.mark.parametrize(
    ("content", "said"), [(b"\xff\xfe\x00", "not UTF-8 text (byte 0)"), (b" \n", "is empty")]
)
def test_a_file_that_can_not_be_read_fails_alone(tmp_path: Path, content: bytes, said: str) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(content)
    assert ingest_one(edge(200, {}), Document(file, "a.txt")) == ("failed", f"failed     a.txt: {said}")


def test_a_refused_document_fails_with_the_edges_words(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    refusing = edge(413, {"error": {"message": "too large", "code": "request_too_large"}})
    outcome, line = ingest_one(refusing, Document(tmp_path / "a.txt", "a.txt"))
    assert outcome == "failed"
    assert line == "failed     a.txt: 413 request_too_large: too large"


def test_an_edge_that_is_gone_ends_it_all(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    gone = EdgeClient(EdgeAddress("http://edge", "k"), httpx.MockTransport(handler))
    with pytest.raises(EdgeUnreachable):
        ingest_one(gone, Document(tmp_path / "a.txt", "a.txt"))
