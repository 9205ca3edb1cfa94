"""From an attempt to a request that the engine can take at once: its prompt in tokens, its grammar compiled.

Owns the order of it, and that a grammar which can't be had is eased where that may be. What the engine is
asked is asking's; how long a grammar is waited for is grammar_wait's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from baton_engine import EngineRequest, InvalidParameter
from baton_engine_worker import asking
from baton_engine_worker.attempt import Attempt
from baton_engine_worker.grammar_wait import GrammarWait
from baton_engine_worker.structures import can_be_eased


async def prepared_request(
    attempt: Attempt, grammar: GrammarWait, when_it_takes_long: Callable[[], None]
) -> EngineRequest:
    """Calls that may be made are held to their schemas as far as that can be done. Raises EngineError if the
    engine would not take it, GivenUp if it was cancelled while its grammar was waited for."""
    prompt = await attempt.parts.tokens.of_work(attempt.handoff.work)
    try:
        return await _compiled(attempt, _request(attempt, prompt), grammar, when_it_takes_long)
    except InvalidParameter:
        if not can_be_eased(attempt.handoff.work):
            raise
    return await _compiled(attempt, _request(attempt, prompt, ease=True), grammar, when_it_takes_long)


def _request(attempt: Attempt, prompt: list[int], *, ease: bool = False) -> EngineRequest:
    parts, ctx = attempt.parts, attempt.ctx
    return asking.engine_request(
        attempt.handoff.work,
        prompt,
        parts.engine,
        parts.dialect,
        request_id=attempt.engine_id,
        default_max_tokens=parts.default_max_tokens,
        room=parts.tokens.room,
        seed=asking.seed_of_run(ctx.request_id, ctx.envelope.run_id),
        ease=ease,
    )


async def _compiled(
    attempt: Attempt, request: EngineRequest, grammar: GrammarWait, when_it_takes_long: Callable[[], None]
) -> EngineRequest:
    if request.sampling.structured is None:
        return request
    future = attempt.parts.engine.prepare(request.sampling)
    return replace(request, grammar=await grammar.until_ready(future, when_it_takes_long))
