"""POST /v1/responses/input_tokens: how many tokens a request to /v1/responses would show the model.

Owns what is counted: the request and what it continues, by the model's own tokenizer and chat template. What
the prompt builder would add, documents and a stored conversation's history, only the answer's usage tells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson
from starlette.types import Receive, Scope, Send

from baton_common.errors import RequestFailed
from baton_common.prompt_tokens import ask_tokens
from baton_contracts.errors import ErrorBody
from baton_contracts.prompt import Sampling
from baton_contracts.tokens import TokensQuery
from baton_edge_api.actor import Desk
from baton_edge_api.answers import NO_STORE, Answer
from baton_edge_api.body import read_body
from baton_edge_api.exchange import exchange_of
from baton_edge_api.front import send_answer
from baton_edge_api.keys import KeyRing
from baton_edge_api.limits.admission import Admission
from baton_edge_api.limits.prompt_count import prompt_of
from baton_edge_api.refusals import not_served
from baton_edge_api.responses.chain import Chain
from baton_edge_api.responses.response_question import ResponseQuestion
from baton_edge_api.settings import EdgeSettings
from baton_edge_api.typed_body import parsed, understood

_COUNT_SECONDS = 3.0


@dataclass(frozen=True)
class InputTokens:
    desk: Desk
    ring: KeyRing
    is_known: Callable[[str], bool]
    """Whether a name stands for a model, be it served now or not."""
    admission: Admission
    chain: Chain
    read: Callable[[object], ResponseQuestion]
    settings: EdgeSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tenant, exchange = self.ring.caller_of(scope), exchange_of(scope)
        limit, seconds = self.settings.max_body_bytes, self.settings.body_timeout
        with self.desk.seat(exchange.request_id):
            body = await read_body(scope, receive, limit=limit, seconds=seconds)
            exchange.body_read = True
            question = await understood(body, lambda given: self.read(parsed(given)))
            self.admission.check_model(tenant, question.chat.model)
            whole = await self.chain.complete(question, tenant, exchange.request_id)
            count = await self._count(whole, exchange.request_id)
        value = {"object": "response.input_tokens", "input_tokens": count}
        await send_answer(send, Answer(200, orjson.dumps(value), [NO_STORE]))

    async def _count(self, question: ResponseQuestion, request_id: str) -> int:
        model = self._counting(question.chat.model)
        cut = Sampling(truncate_prompt_tokens=question.chat.sampling.truncate_prompt_tokens)
        query = TokensQuery(model=model, prompt=prompt_of(question.chat), sampling=cut)
        reply = await ask_tokens(self.desk.node.bus, request_id, query, seconds=_COUNT_SECONDS)
        if reply is None:
            text = f"No replica of {model} is there to count its tokens. Try again."
            raise RequestFailed(ErrorBody(code="no_ready_replica", message=text, retry_after_seconds=1))
        if reply.error:
            raise RequestFailed(reply.error)
        return reply.num_tokens

    def _counting(self, name: str) -> str:
        """The model whose tokenizer counts. Raises RequestFailed."""
        if not self.is_known(name):
            text = f"The model {name!r} does not exist. GET /v1/models lists those that do."
            raise RequestFailed.because("model_not_found", text, param="model")
        model = self.admission.tokenizer_of(name)
        if model is None:
            raise not_served("model", "only another server has it, and knows its tokens.")
        return model
