"""Token ids of a prompt become its text, spelled by a replica of the model: guards read text, not ids.

Owns what is asked and what a missing answer means. The ids stay beside the text; the engine compares them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from baton_common.bus import Bus
from baton_common.catalog import Catalog
from baton_common.errors import RequestFailed
from baton_common.prompt_tokens import ask_tokens
from baton_contracts.envelope import Tenant
from baton_contracts.errors import ErrorBody
from baton_contracts.prompt import ChatRequest, Part, Prompt
from baton_contracts.tokens import TokensQuery
from baton_edge_api.completion_question import CompletionQuestion
from baton_edge_api.question import Question
from baton_edge_api.refusals import bad_value

SPELL_SECONDS = 3.0


class Speller:
    def __init__(self, bus: Bus, catalog: Catalog, is_known: Callable[[str], bool]) -> None:
        self._bus = bus
        self._catalog = catalog
        self._is_known = is_known

    async def complete(self, question: Question, tenant: Tenant, request_id: str) -> Question:
        """The question with a text for all of its ids. Raises RequestFailed."""
        del tenant
        if not isinstance(question, CompletionQuestion) or not question.chat.token_ids:
            return question
        model = self._model(question.chat.model)
        chats = await asyncio.gather(*(self._spelled(model, chat, request_id) for chat in question.chats))
        return question.with_chats(chats)

    def _model(self, name: str) -> str:
        alias = self._catalog.aliases.get(name)
        if alias is None:
            if not self._is_known(name):
                text = f"The model {name!r} does not exist. GET /v1/models lists those that do."
                raise RequestFailed.because("model_not_found", text, param="model")
            return name
        if alias.large is None:
            return alias.small
        text = f"{name} may stand for {alias.small} or {alias.large}, whose token ids differ. Name one."
        raise bad_value("model", text)

    async def _spelled(self, model: str, chat: ChatRequest, request_id: str) -> ChatRequest:
        prompt = Prompt(messages=chat.messages, rendering="raw", token_ids=chat.token_ids)
        query = TokensQuery(model=model, prompt=prompt, want="text")
        reply = await ask_tokens(self._bus, request_id, query, seconds=SPELL_SECONDS)
        if reply is None:
            text = f"No replica of {model} is there to read the prompt's token ids. Try again, or send text."
            error = ErrorBody(code="no_ready_replica", message=text, param="prompt", retry_after_seconds=1)
            raise RequestFailed(error)
        if reply.error:
            raise RequestFailed(reply.error.model_copy(update={"param": "prompt"}))
        message = chat.messages[0].model_copy(update={"parts": (Part(text=reply.text),)})
        return chat.model_copy(update={"messages": (message,), "model": model})
