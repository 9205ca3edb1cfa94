"""The catalog: models known by name (catalog_models.py), what answers under a name (routes.py), and aliases.

What ships comes first, a user's `$BATON_HOME/catalog.toml` on top. Knows nothing of downloads, of what is
installed, or of which model fits a question: it only says what a name stands for.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from baton_common.catalog_models import CatalogModel, read_model
from baton_common.catalog_table import CatalogError, Table
from baton_common.money import Price
from baton_common.routes import (
    CacheBook,
    Route,
    check_routes,
    local_route,
    read_cache,
    read_route,
)

__all__ = [
    "DEFAULT_MAX_TOKENS",
    "Alias",
    "Catalog",
    "CatalogError",
    "catalog_of",
    "catalog_or_exit",
    "load_catalog",
    "parse_catalog",
]

DEFAULT_MAX_TOKENS = 1024
"""Bound of an answer where neither its client nor the catalog names one."""


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
            models[name] = read_model(name, table)
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


def _alias(name: str, table: Table, models: Mapping[str, Route]) -> Alias:
    if name in models:
        raise CatalogError(table.path, "is also the name of a model")
    alias = Alias(name, table.text("small"), table.optional_text("large"), table.text("about"))
    for key, target in (("small", alias.small), ("large", alias.large)):
        if target is not None and target not in models:
            raise table.fail(key, f"names no model of the catalog: {target!r}")
    return alias
