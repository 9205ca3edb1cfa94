"""Asks a model's replicas what a prompt is in tokens. Fails open: who asks must be able to go on without."""

from __future__ import annotations

import logging

from baton_common.bus import Bus
from baton_common.errors import BusError
from baton_contracts import subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.identifiers import subject_token
from baton_contracts.tokens import TokensQuery, TokensReply

log = logging.getLogger(__name__)

ASK_SECONDS = 0.25


async def ask_tokens(
    bus: Bus, request_id: str, query: TokensQuery, *, seconds: float = ASK_SECONDS
) -> TokensReply | None:
    """None if nobody answered within `seconds`. A reply with an error: the engine would refuse it."""
    subject = subjects.tokens(subject_token(query.model), request_id)
    try:
        return TokensReply.decode(await bus.request(subject, query.encode(), timeout=seconds))
    except (BusError, MalformedMessage) as error:
        log.debug("tokens of a prompt for %s: %s", query.model, error)
        return None
