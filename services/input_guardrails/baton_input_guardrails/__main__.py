"""`python -m baton_input_guardrails`."""
# ruff: noqa: E402  # what is left out must be left out before anything else is imported

from __future__ import annotations

import sys

# spaCy and Presidio load these wherever they are installed and use neither here: 310 MB and seconds at start.
sys.modules.update(dict.fromkeys(("torch", "transformers")))  # pyright: ignore[reportArgumentType, reportCallIssue]

from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_common.vault import Vault, VaultError
from baton_input_guardrails.config import load_config
from baton_input_guardrails.settings import Settings
from baton_input_guardrails.wiring import build_topics, wire


def main() -> None:
    settings = load_settings(Settings)
    try:
        config = load_config(settings.guard_config)
        build_topics(config)
        vault = Vault(settings.vault_key.get_secret_value())
    except (ValueError, VaultError) as error:
        sys.stderr.write(f"input_guardrails: {error}\n")
        raise SystemExit(2) from None
    run_service("input_guardrails", settings, wire(settings, config, vault))


if __name__ == "__main__":
    main()
