"""A prompt in this model's tokens, once: for a request, or for a router or an edge that asks beforehand.

Owns when tokenising leaves the event loop and when tokens made elsewhere are believed. Knows not who asks.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from baton_common.errors import RequestFailed
from baton_common.node import Node
from baton_common.responder import Responder, ResponderLimits
from baton_contracts import subjects
from baton_contracts.handoffs import EngineWork
from baton_contracts.identifiers import subject_token
from baton_contracts.prompt import Prompt
from baton_contracts.tokens import TokensQuery, TokensReply
from baton_engine import EngineError, prefix_hashes
from baton_engine_worker import asking, prompting, translation
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.engine_face import Engine

LONG_PROMPT_CHARACTERS = 16_000
"""From here on tokenising would hold up the frames of others, so it leaves the event loop."""
BLOCK_SIZE_TOKENS = 16
LIMITS = ResponderLimits(concurrency=8, mailbox=256, answer_seconds=2.0)


class PromptTokens:
    def __init__(self, engine: Engine, dialect: Dialect) -> None:
        self._engine = engine
        self._dialect = dialect
        made_by = f"{engine.tokenizer.fingerprint} {dialect}"
        self.tokenizer_id = hashlib.sha256(made_by.encode()).hexdigest()[:16]
        """Equal ids: equal prompts are equal tokens, how tools are shown included."""

    @property
    def room(self) -> int:
        """Tokens that one request can have in all: of the context, and of the KV pool."""
        engine = self._engine
        return min(engine.max_model_len, engine.stats().kv_blocks_total * BLOCK_SIZE_TOKENS + 1)

    async def of_work(self, work: EngineWork) -> list[int]:
        """Raises RequestRejected if the model's template does not take these messages."""
        if work.prompt_token_ids and work.prompt_tokenizer == self.tokenizer_id:
            return list(work.prompt_token_ids)
        return await self._tokenise(work.prompt)

    async def answer(self, _request_id: str, query: TokensQuery) -> TokensReply:
        if query.want == "text":
            return self._spelled(query.prompt.token_ids)
        try:
            token_ids = await self._tokenise(query.prompt)
        except EngineError as error:
            raise RequestFailed(translation.refusal(error, "This replica")) from None
        computed = (*asking.truncated(token_ids, query.sampling, self.room), *query.resume_token_ids)
        reply = TokensReply(num_tokens=len(computed), block_size=BLOCK_SIZE_TOKENS)
        if query.want == "count":
            return reply
        hashes = self._hashes(computed, query) if query.want == "hashes" else ()
        return reply.model_copy(
            update={
                "token_ids": tuple(token_ids),
                "tokenizer": self.tokenizer_id,
                "block_hashes": hashes,
            }
        )

    def _spelled(self, token_ids: Sequence[int]) -> TokensReply:
        text: str = self._engine.tokenizer.decode(token_ids, skip_special_tokens=False)
        return TokensReply(num_tokens=len(token_ids), text=text)

    async def _tokenise(self, prompt: Prompt) -> list[int]:
        whole = (prompt, self._engine.tokenizer, self._dialect)
        if prompt.num_characters > LONG_PROMPT_CHARACTERS:
            return await asyncio.to_thread(prompting.prompt_token_ids, *whole)
        return prompting.prompt_token_ids(*whole)

    def _hashes(self, token_ids: Sequence[int], query: TokensQuery) -> tuple[str, ...]:
        """The last token is always computed, and every one whose own probability is asked for."""
        if query.sampling.prompt_logprobs is not None:
            return ()
        digests = prefix_hashes(token_ids[:-1], BLOCK_SIZE_TOKENS, query.cache_salt)
        return tuple(digest.hex() for digest in digests)


def token_questions(node: Node, tokens: PromptTokens, model: str) -> Responder[TokensQuery, TokensReply]:
    return Responder(
        node,
        subject=subjects.tokens_of_model(subject_token(model)),
        query=TokensQuery,
        reply=TokensReply,
        answer=tokens.answer,
        limits=LIMITS,
    )
