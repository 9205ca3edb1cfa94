"""What the router learns of a prompt before it chooses: its tokens and the chain of its blocks.

Asked of the model's replicas, and only if there is a choice. Without an answer in time load alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_common.bus import Bus
from baton_common.prompt_tokens import ask_tokens
from baton_contracts.handoffs import EngineWork
from baton_contracts.tokens import TokensQuery, TokensReply
from baton_inference_router.prefix_index import PrefixIndex, block_keys
from baton_inference_router.scoring import Asked, Candidate

MAX_IDS_PASSED_ON = 262_144
"""Beside its text they must fit into one message: who has more is tokenised twice, or is over any context."""


@dataclass(frozen=True)
class ReadPrompt:
    """Nothing known: no tokens, no chain, and the work as it came."""

    work: EngineWork
    num_tokens: int = 0
    block_size: int = 16
    chain: tuple[int, ...] = ()

    @property
    def asked(self) -> Asked:
        return Asked(self.num_tokens, self.work.adapter)

    def cached_tokens(self, index: PrefixIndex, candidates: list[Candidate]) -> dict[str, int]:
        if not self.chain:
            return {}
        size = self.block_size
        return {each.replica: index.num_cached(each.replica, self.chain) * size for each in candidates}


async def read_prompt(bus: Bus, request_id: str, work: EngineWork, seconds: float) -> ReadPrompt:
    query = TokensQuery(
        model=work.model,
        prompt=work.prompt,
        sampling=work.sampling,
        resume_token_ids=work.resume_token_ids,
        cache_salt=work.cache_salt,
        want="hashes",
    )
    reply = await ask_tokens(bus, request_id, query, seconds=seconds)
    if reply is None or reply.error:
        return ReadPrompt(work)
    return _told(work, reply)


def _told(work: EngineWork, reply: TokensReply) -> ReadPrompt:
    try:
        chain = tuple(block_keys(reply.block_hashes))
    except ValueError:
        chain = ()
    if len(reply.token_ids) <= MAX_IDS_PASSED_ON:
        told = {"prompt_token_ids": reply.token_ids, "prompt_tokenizer": reply.tokenizer}
        work = work.model_copy(update=told)
    return ReadPrompt(work, reply.num_tokens, reply.block_size, chain)
