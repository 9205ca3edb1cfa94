"""Where the real weights of these tests lie."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def model_folder() -> Path:
    """BATON_TEST_MODEL, or smollm2-135m under BATON_HOME (default ~/.baton)."""
    named = os.environ.get("BATON_TEST_MODEL")
    home = Path(os.environ.get("BATON_HOME", "~/.baton")).expanduser()
    return Path(named) if named else home / "models" / "smollm2-135m"


def require_model() -> Path:
    folder = model_folder()
    if not (folder / "config.json").is_file():
        pytest.skip(f"no model at {folder}: run `baton models pull smollm2-135m` or set BATON_TEST_MODEL")
    return folder
