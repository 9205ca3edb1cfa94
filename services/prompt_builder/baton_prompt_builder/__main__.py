"""`python -m baton_prompt_builder`."""

from __future__ import annotations

from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_prompt_builder.settings import Settings
from baton_prompt_builder.wiring import wire


def main() -> None:
    settings = load_settings(Settings)
    run_service("prompt_builder", settings, wire(settings))


if __name__ == "__main__":
    main()
