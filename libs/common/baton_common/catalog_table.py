"""A TOML table that knows where it stands and complains with it. Knows nothing of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from baton_common.errors import BatonError


class CatalogError(BatonError):
    """An entry of the catalog is wrong. `entry` names it, e.g. `models.smollm2-135m.file.sha256`."""

    def __init__(self, entry: str, problem: str) -> None:
        super().__init__(f"catalog entry {entry}: {problem}")
        self.entry = entry
        self.problem = problem


class Table:
    """A TOML table that knows its path and complains with it."""

    def __init__(self, path: str, values: Mapping[str, object]) -> None:
        self.path = path
        self.values = values

    def at(self, key: str) -> str:
        return key if self.path == "catalog" else f"{self.path}.{key}"

    def fail(self, key: str, problem: str) -> CatalogError:
        return CatalogError(self.at(key), problem)

    def get(self, key: str, kind: type[object], default: object = None) -> object:
        value = self.values.get(key, default)
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
        return self.text(key) if key in self.values else None

    def positive(self, key: str) -> int:
        value = cast("int", self.get(key, int))
        if value <= 0:
            raise self.fail(key, f"must be above 0, is {value}")
        return value

    def optional_positive(self, key: str) -> int | None:
        return self.positive(key) if key in self.values else None

    def flag(self, key: str, default: bool | None = None) -> bool:
        return cast("bool", self.get(key, bool, default))

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in allowed:
            raise self.fail(key, f"must be one of {', '.join(allowed)}, is {value!r}")
        return value

    def table(self, key: str) -> Table:
        return Table(self.at(key), cast("Mapping[str, object]", self.get(key, dict)))

    def optional_table(self, key: str) -> Table:
        return self.table(key) if key in self.values else Table(self.at(key), {})

    def number(self, key: str, default: float, *, least: float = 0.0) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fail(key, f"must be a number, is a {type(value).__name__}")
        if not least <= value < float("inf"):
            raise self.fail(key, f"must be at least {least:g}, is {value:g}")
        return float(value)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts; none where the key is missing."""
        found = cast("list[object]", self.get(key, list, []))
        if not all(isinstance(each, str) and each for each in found):
            raise self.fail(key, "must be a list of texts")
        return tuple(cast("list[str]", found))

    def only(self, *allowed: str) -> None:
        """Raises CatalogError for a key that means nothing here: most often it is a slip of the pen."""
        for key in self.values:
            if key not in allowed:
                raise self.fail(key, f"must be one of {', '.join(allowed)}")

    def has(self, key: str) -> bool:
        return key in self.values

    def names(self) -> list[str]:
        return list(self.values)

    def tables(self, key: str) -> list[tuple[str, Table]]:
        inner = self.table(key)
        return [(name, inner.table(name)) for name in inner.values]

    def rows(self, key: str) -> list[Table]:
        rows = cast("list[object]", self.get(key, list, []))
        wrong = next((row for row in rows if not isinstance(row, dict)), None)
        if wrong is not None:
            raise self.fail(key, "must be a list of tables")
        return [
            Table(f"{self.at(key)}[{index}]", cast("Mapping[str, object]", row))
            for index, row in enumerate(rows)
        ]
