"""`python -m baton_embedder`."""

from __future__ import annotations

from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_embedder.settings import Settings
from baton_embedder.wiring import wire


def main() -> None:
    settings = load_settings(Settings)
    run_service("embedder", settings, wire(settings))


if __name__ == "__main__":
    main()
