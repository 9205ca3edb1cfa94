"""The files that a browser may have: a fixed list, read once. A path that is not on it is not there.

No file name is made from what a client sent, so no path can lead out of the package.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

_HTML = "text/html; charset=utf-8"
_CSS = "text/css; charset=utf-8"
_SCRIPT = "text/javascript; charset=utf-8"

_FILES: dict[str, tuple[str, str]] = {
    "/": ("chat.html", _HTML),
    "/ui": ("chat.html", _HTML),
    "/ui/chat.js": ("chat.js", _SCRIPT),
    "/ui/stream.js": ("stream.js", _SCRIPT),
    "/ui/turn.js": ("turn.js", _SCRIPT),
    "/ui/text.js": ("text.js", _SCRIPT),
    "/ui/relay.js": ("relay.js", _SCRIPT),
    "/ui/baton.css": ("baton.css", _CSS),
    "/ui/icon.svg": ("icon.svg", "image/svg+xml"),
    "/ui/trace": ("trace.html", _HTML),
    "/ui/trace.js": ("trace.js", _SCRIPT),
}


@dataclass(frozen=True)
class Page:
    media_type: str
    body: str


class Pages:
    def __init__(self) -> None:
        folder = files("baton_trace_console") / "pages"
        self._pages = {
            path: Page(media_type, (folder / name).read_text(encoding="utf-8"))
            for path, (name, media_type) in _FILES.items()
        }

    def find(self, path: str) -> Page | None:
        """`path` without a query."""
        return self._pages.get(path)
