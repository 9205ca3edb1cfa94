"""R7: cancels in random states leave the counts of the router, the gateway and the engine at zero.

Here with the real step loop and its blocks; tests/pipeline has the same over NATS.
"""

from __future__ import annotations

import asyncio
import random

from baton_contracts.prompt import Sampling
from baton_engine import AsyncEngine
from tests.support.relay_stage import Exchange, Stage, question
from tests.support.tiny_model import tiny_config, tiny_parts
from tests.support.waiting import eventually

COUNT = 300


async def test_counts_are_zero_at_the_end(memory_stage: Stage) -> None:
    stage = memory_stage
    engine = AsyncEngine(tiny_config(), tiny_parts())
    worker = await stage.worker(engine)
    guard, router, gateway = await asyncio.gather(stage.guard(), stage.router(), stage.gateway())
    chance = random.Random(11)  # noqa: S311  # the same states in each run
    sampling = Sampling(temperature=0, max_tokens=40, ignore_eos=True)

    async def one(number: int) -> Exchange:
        prompt = question("x" * chance.randrange(1, 120))
        request_id = await stage.send(stage.handoff(prompt, sampling=sampling, use_cache=False))
        if number % 3:
            after = chance.randrange(0, 20)
            heard = await stage.listen(request_id, until=lambda heard: len(heard.token_ids) >= after)
            if heard.end or heard.error:
                return heard
            await stage.cancel(request_id)
            return await stage.listen(request_id, into=heard)
        await stage.cancel(request_id)
        return await stage.listen(request_id)

    answers: list[Exchange] = []
    for start in range(0, COUNT, 50):
        answers += await asyncio.gather(*(one(start + number) for number in range(50)))

    assert len(answers) == COUNT
    assert all(heard.end or heard.error for heard in answers)
    services = [worker, guard, router, gateway]
    await eventually(lambda: all(each.node.num_held == 0 for each in services))
    assert [each.node.cancels.num_held for each in services] == [0, 0, 0, 0]
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.waiting_tokens, stats.kv_blocks_held) == (0, 0, 0, 0)
    assert stats.kv_blocks_free + stats.kv_blocks_cached == stats.kv_blocks_total
    rows = [(row.request_id, row.attempt) for row in stage.records]
    assert len(rows) == len(set(rows))
