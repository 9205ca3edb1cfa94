"""What of an answer a chat's client is told, and in which of the forms there are. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from baton_contracts.frames import FinishReason
from baton_contracts.openai_requests import AssistantMessage, ChatCompletionRequest
from baton_edge_api.chat_mapping import texts_of


@dataclass(frozen=True)
class ChatForm:
    num_answers: int = 1
    """So many are given; with best_of more are written."""
    with_logprobs: bool = False
    tokens_as_ids: bool = False
    """In logprobs."""
    token_ids: bool = False
    prompt_logprobs: bool = False
    reasoning: bool = True
    functions: bool = False
    """Calls in the older form."""
    echo: str = ""
    """The answer begins with this: what it goes on from."""

    def reason(self, reason: FinishReason) -> str:
        return "function_call" if self.functions and reason == "tool_calls" else reason


PLAIN = ChatForm()


def chat_form(wire: ChatCompletionRequest) -> ChatForm:
    last = wire.messages[-1]
    echoed = last.content if wire.echo and isinstance(last, AssistantMessage) else None
    return ChatForm(
        num_answers=wire.n or 1,
        with_logprobs=bool(wire.logprobs),
        tokens_as_ids=bool(wire.return_tokens_as_token_ids),
        token_ids=bool(wire.return_token_ids),
        prompt_logprobs=wire.prompt_logprobs is not None,
        reasoning=wire.include_reasoning is not False,
        functions=wire.functions is not None,
        echo="".join(texts_of(echoed)),
    )
