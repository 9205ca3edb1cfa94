"""What a client asks of the response cache: `cache-control` and `x-baton-cache-ttl`. Pure.

no-store     neither read nor kept
no-cache     not read, but kept: the answer is fresh
max-age=N    read if it is younger than N seconds
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from baton_common.errors import RequestFailed

TTL_HEADER = b"x-baton-cache-ttl"
MAX_SECONDS = 30 * 24 * 3600.0


@dataclass(frozen=True)
class CacheWish:
    """None: as the gateway does it."""

    store: bool = True
    max_age: float | None = None
    ttl: float | None = None

    @property
    def fields(self) -> dict[str, object]:
        """Of a ChatRequest, as far as they differ from its defaults."""
        asked: dict[str, object] = {"cache_max_age": self.max_age, "cache_ttl": self.ttl}
        found = {name: value for name, value in asked.items() if value is not None}
        return found if self.store else {"use_cache": False}


def cache_wish(cache_control: str | None, ttl: str | None) -> CacheWish | None:
    """None: nothing was asked. Directives that we don't know are passed over, as HTTP has it. Raises
    RequestFailed for a time to live that is none."""
    if cache_control is None and ttl is None:
        return None
    directives: dict[str, str] = {}
    for part in (cache_control or "").split(","):
        name, _, value = part.strip().lower().partition("=")
        directives[name] = value
    if "no-store" in directives:
        return CacheWish(store=False)
    max_age = 0.0 if "no-cache" in directives else _seconds(directives.get("max-age", ""))
    return CacheWish(max_age=max_age, ttl=_time_to_live(ttl))


def _time_to_live(text: str | None) -> float | None:
    if text is None:
        return None
    seconds = _seconds(text)
    if not seconds:
        said = f"{TTL_HEADER.decode()} must be seconds, more than 0 and at most {MAX_SECONDS:g}."
        raise RequestFailed.because("invalid_value", said, param=TTL_HEADER.decode())
    return seconds


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text.strip('" '))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and 0 <= seconds <= MAX_SECONDS else None
