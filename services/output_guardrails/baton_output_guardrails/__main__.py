"""`python -m baton_output_guardrails`."""

from __future__ import annotations

import sys

from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_common.vault import Vault, VaultError
from baton_output_guardrails.config import load_config
from baton_output_guardrails.settings import Settings
from baton_output_guardrails.wiring import compile_rules, wire


def main() -> None:
    settings = load_settings(Settings)
    try:
        config = load_config(settings.guard_config)
        rules = compile_rules(config)
        vault = Vault(settings.vault_key.get_secret_value())
    except (ValueError, VaultError) as error:
        sys.stderr.write(f"output_guardrails: {error}\n")
        raise SystemExit(2) from None
    run_service("output_guardrails", settings, wire(settings, config, vault, rules))


if __name__ == "__main__":
    main()
