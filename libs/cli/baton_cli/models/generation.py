"""The catalog's sampling defaults, in the place where every reader of a model folder looks for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FILE = "generation_config.json"


def write_generation_defaults(folder: Path, defaults: Mapping[str, float]) -> None:
    """Adds `defaults` to the folder's generation_config.json, or replaces those of an older catalog. What
    else stands there stays; the file is replaced whole, so a reader never sees half of it."""
    path = folder / FILE
    before = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    after = {**before, **defaults}
    if after == before:
        return
    fresh = path.with_suffix(".json.new")
    fresh.write_text(json.dumps(after, indent=2) + "\n", encoding="utf-8")
    fresh.replace(path)
