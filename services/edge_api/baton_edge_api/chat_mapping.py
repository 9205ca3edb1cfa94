"""A validated chat completion request in the relay's own words. Owns what each HTTP parameter means there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, cast

from baton_contracts.openai_requests import AssistantMessage, ChatCompletionRequest, ChatMessage, ToolMessage
from baton_contracts.prompt import ChatRequest, Message, Part, Role, Sampling
from baton_edge_api.formats import structured_output
from baton_edge_api.json_words import as_text
from baton_edge_api.refusals import bad_value
from baton_edge_api.tools import called, tools_of

_TOKEN_ID = re.compile(r"[0-9]{1,9}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESERVED_VARIABLES = frozenset({"self", "messages", "tools", "add_generation_prompt", "chat_template"})
"""What a template gets from elsewhere."""


def chat_request(wire: ChatCompletionRequest) -> ChatRequest:
    """Raises RequestFailed, naming the parameter."""
    if wire.truncate_prompt_tokens == 0:
        raise bad_value("truncate_prompt_tokens", "must be -1, or at least 1.")
    tools, choice = tools_of(wire)
    return ChatRequest(
        model=wire.model,
        messages=tuple(_message(message) for message in wire.messages),
        tools=tools,
        tool_choice=choice,
        template_variables=_template_variables(wire.chat_template_kwargs),
        sampling=_sampling(wire),
        priority=wire.priority or 0,
        cache_salt=wire.cache_salt or "",
        stream=bool(wire.stream),
        retrieval=_retrieval(wire.retrieval),
        continue_conversation=wire.conversation_id is not None,
    )


def _message(message: ChatMessage) -> Message:
    role: Role = "system" if message.role == "developer" else message.role
    content = message.content
    if isinstance(message, AssistantMessage) and content is None:
        content = message.refusal
    origin: Literal["tool", "client"] = "tool" if role == "tool" else "client"
    return Message(
        role=role,
        name=None if isinstance(message, ToolMessage) else message.name,
        parts=tuple(Part(text=text, origin=origin) for text in texts_of(content)),
        tool_calls=called(message) if isinstance(message, AssistantMessage) else (),
        tool_call_id=message.tool_call_id if isinstance(message, ToolMessage) else None,
    )


def texts_of(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for part in cast(list[Any], content):
            yield getattr(part, "text", None) or getattr(part, "refusal", "")


def _sampling(wire: ChatCompletionRequest) -> Sampling:
    stop = wire.stop or ()
    allowed = wire.allowed_token_ids
    return Sampling(
        max_tokens=wire.max_completion_tokens or wire.max_tokens,
        min_tokens=wire.min_tokens or 0,
        temperature=wire.temperature,
        top_p=wire.top_p,
        top_k=None if wire.top_k is None else max(wire.top_k, 0),
        min_p=wire.min_p,
        seed=wire.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=tuple(wire.stop_token_ids or ()),
        ignore_eos=bool(wire.ignore_eos),
        include_stop_str_in_output=bool(wire.include_stop_str_in_output),
        skip_special_tokens=wire.skip_special_tokens is not False,
        presence_penalty=wire.presence_penalty or 0.0,
        frequency_penalty=wire.frequency_penalty or 0.0,
        repetition_penalty=wire.repetition_penalty,
        logit_bias=_logit_bias(wire.logit_bias or {}),
        bad_words=tuple(wire.bad_words or ()),
        allowed_token_ids=None if allowed is None else tuple(allowed),
        n=wire.n or 1,
        logprobs=(wire.top_logprobs or 0) if wire.logprobs else None,
        truncate_prompt_tokens=wire.truncate_prompt_tokens,
        structured=structured_output(wire),
    )


def _logit_bias(asked: dict[str, float]) -> dict[int, float]:
    if not all(_TOKEN_ID.fullmatch(token_id) for token_id in asked):
        raise bad_value("logit_bias", "its keys must be token ids: whole numbers from 0 on, as strings.")
    return {int(token_id): bias for token_id, bias in asked.items()}


def _template_variables(asked: dict[str, Any] | None) -> str:
    for name in asked or {}:
        if name in _RESERVED_VARIABLES:
            raise bad_value("chat_template_kwargs", f"{name} can't be given here.")
        if not _VARIABLE.fullmatch(name):
            raise bad_value("chat_template_kwargs", "its keys must be names of template variables.")
    return as_text(asked, "chat_template_kwargs") if asked else ""


def _retrieval(asked: bool | str | None) -> Literal["auto", "on", "off"]:
    if asked is None:
        return "auto"
    if isinstance(asked, bool):
        return "on" if asked else "off"
    return cast(Literal["auto", "on", "off"], asked)
