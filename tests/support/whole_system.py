"""What tests of the whole system find here: the models that were pulled before, and the key that they use."""

from __future__ import annotations

import os
from pathlib import Path

DEV_KEY = "sk-baton-dev-0123456789abcdef0123456789abcdef"


def pulled_models() -> Path:
    return Path(os.environ.get("BATON_HOME") or Path.home() / ".baton") / "models"


def has_model(name: str = "smollm2-135m") -> bool:
    return (pulled_models() / name).is_dir()
