"""What the router learns of a prompt before it chooses: its tokens and the chain of its blocks.

Asked of the model's replicas, and only if there is a choice and it may matter. Without an answer in time load
alone decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from baton_common.bus import Bus
from baton_common.prompt_tokens import ask_tokens
from baton_contracts.handoffs import EngineWork
from baton_contracts.tokens import TokensQuery, TokensReply
from baton_inference_router.prefix_index import PrefixIndex, block_keys
from baton_inference_router.scoring import LEAST_CACHED_TOKENS, Asked, Candidate

WORTH_READING_CHARACTERS = 2 * LEAST_CACHED_TOKENS
"""A shorter prompt has hardly as many tokens as count: four characters are about one, or one or two where a
script has many signs."""
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
        """Of those that have some of the prompt."""
        holders = index.holders((each.replica for each in candidates), self.chain)
        size, most = self.block_size, self.num_tokens
        return {replica: min(most, blocks * size) for replica, blocks in holders.items()}


def is_worth_reading(work: EngineWork) -> bool:
    """A question costs a millisecond; what a cache could spare of a greeting counts for nothing."""
    ids = len(work.prompt.token_ids) + len(work.resume_token_ids)
    return ids >= LEAST_CACHED_TOKENS or work.prompt.num_characters >= WORTH_READING_CHARACTERS


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
