"""What the headers of an answer say of the way it came: conversation, model, replica, cache. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from baton_contracts.frames import Prologue
from baton_edge_api.answers import HeaderList


def baton_headers(conversation_id: str, ignored: Iterable[str], prologue: Prologue | None) -> HeaderList:
    """`ignored`: parameters that the edge took no notice of. Without a prologue what is known before it."""
    headers = [(b"x-conversation-id", conversation_id.encode())]
    ignored = {*ignored, *(prologue.ignored if prologue else ())}
    if ignored:
        headers.append((b"x-baton-ignored-parameters", _header_value(",".join(sorted(ignored)))))
    if prologue:
        headers += [
            (b"x-baton-model", _header_value(prologue.model)),
            (b"x-baton-replica", _header_value(prologue.replica)),
            (b"x-baton-cache", prologue.cache.encode()),
        ]
        if prologue.cache_similarity is not None:
            headers.append((b"x-baton-cache-similarity", b"%.3f" % prologue.cache_similarity))
    return headers


def _header_value(text: str) -> bytes:
    """Printable ASCII; a model's name may hold anything."""
    return "".join(char if " " <= char <= "~" else "?" for char in text).encode()
