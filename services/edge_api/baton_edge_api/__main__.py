"""Starts the edge: `python -m baton_edge_api`."""

from __future__ import annotations

from baton_common.catalog import catalog_or_exit
from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_edge_api.server import check_tls, listen
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.wiring import wire


def main() -> None:
    settings = load_settings(EdgeSettings)
    check_tls(settings)
    catalog_or_exit(settings.home)
    run_service("edge_api", settings, wire(settings, listen(settings)))


if __name__ == "__main__":
    main()
