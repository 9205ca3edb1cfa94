"""Where a body is understood: a big one beside the loop, on which other answers are told."""

from __future__ import annotations

import threading

from baton_edge_api.typed_body import understood


async def test_a_big_body_holds_nobody_up_and_a_small_one_pays_for_no_thread() -> None:
    here = threading.get_ident()
    assert await understood(bytes(1000), lambda _: threading.get_ident()) == here
    assert await understood(bytes(300_000), lambda _: threading.get_ident()) != here
