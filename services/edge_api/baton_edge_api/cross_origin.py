"""Pages of other origins: which of them a browser lets talk to the edge, with a key that they hold.

Owns nothing but the choice. Without allowed origins there is no code in a request's way.
"""

from __future__ import annotations

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

_PREFLIGHT_SECONDS = 600


def for_origins(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """No cookies are ever asked for, so `*` gives a foreign page nothing that it doesn't bring."""
    if not origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=("*",),
        expose_headers=("*",),
        max_age=_PREFLIGHT_SECONDS,
    )
