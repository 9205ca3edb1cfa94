"""The terminal: one console for answers on stdout, one for complaints on stderr."""

from __future__ import annotations

from rich.console import Console

console = Console(highlight=False)
complaints = Console(stderr=True, highlight=False)
