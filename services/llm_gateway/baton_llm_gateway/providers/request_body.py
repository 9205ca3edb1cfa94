"""A question in OpenAI's words, for another server. Pure.

Text is masked text: placeholders stay in it, and the output guardrails put the values back. What OpenAI's
specification does not know goes out only where the target says that it takes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from baton_common.errors import RequestFailed
from baton_common.routes import Target
from baton_contracts.prompt import ChatRequest, Message, Prompt, Sampling, StructuredOutput, Tool, ToolChoice

_PARAM_OF_RENDERING = {
    "raw": "prompt",
    "unopened": "add_generation_prompt",
    "continued": "continue_final_message",
}
"""Ways to read messages that only an engine of our own has."""

STREAM_OPTIONS = {"include_usage": True}


def request_body(target: Target, chat: ChatRequest, prompt: Prompt) -> bytes:
    """Raises RequestFailed (unsupported_parameter) for what this server would not understand."""
    if prompt.rendering != "chat":
        _check_taken(target, prompt.rendering, _PARAM_OF_RENDERING[prompt.rendering])
    if chat.sampling.return_token_ids:
        _check_taken(target, "return_token_ids", "return_token_ids")
    body: dict[str, Any] = {
        "model": target.model,
        "messages": [_message(message) for message in prompt.messages],
    }
    if prompt.tools:
        body |= {"tools": [_tool(tool) for tool in prompt.tools], **_tool_choice(chat.tool_choice)}
    body |= _known(target, chat.sampling)
    if chat.sampling.structured:
        body |= _structured(target, chat.sampling.structured)
    for name, value in _extras(chat.sampling, prompt):
        _check_taken(target, name, name)
        body[name] = value
    if chat.stream:
        body |= {"stream": True, "stream_options": STREAM_OPTIONS}
    return orjson.dumps(body)


def _message(message: Message) -> dict[str, Any]:
    wire: dict[str, Any] = {"role": message.role, "content": message.text if message.parts else None}
    if message.name:
        wire["name"] = message.name
    if message.tool_call_id:
        wire["tool_call_id"] = message.tool_call_id
    if message.tool_calls:
        wire["tool_calls"] = [
            {
                "id": call.call_id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return wire


def _tool(tool: Tool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.parameters:
        function["parameters"] = orjson.Fragment(tool.parameters)
    if tool.strict:
        function["strict"] = True
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> dict[str, Any]:
    named = {"type": "function", "function": {"name": choice.name}} if choice.name else choice.mode
    return {"tool_choice": named} | ({} if choice.parallel else {"parallel_tool_calls": False})


def _known(target: Target, sampling: Sampling) -> dict[str, Any]:
    """What OpenAI's specification has; what is as it would be anyway is left out."""
    asked: dict[str, Any] = {
        target.max_tokens_field: sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "presence_penalty": sampling.presence_penalty or None,
        "frequency_penalty": sampling.frequency_penalty or None,
        "logit_bias": {str(token): bias for token, bias in sampling.logit_bias.items()} or None,
        "n": sampling.n if sampling.n > 1 else None,
    }
    if sampling.logprobs is not None:
        asked["logprobs"] = True
        asked["top_logprobs"] = sampling.logprobs or None
    return {name: value for name, value in asked.items() if value is not None}


def _structured(target: Target, form: StructuredOutput) -> dict[str, Any]:
    if form.kind == "json_object":
        return {"response_format": {"type": "json_object"}}
    if form.kind == "json_schema":
        schema = {"name": "answer", "strict": True, "schema": orjson.Fragment(form.text)}
        return {"response_format": {"type": "json_schema", "json_schema": schema}}
    _check_taken(target, "structured_outputs", form.param)
    return {"structured_outputs": {form.kind: list(form.choices) if form.kind == "choice" else form.text}}


def _extras(sampling: Sampling, prompt: Prompt) -> Iterator[tuple[str, Any]]:
    neutral = Sampling()
    for name in (
        "top_k",
        "min_p",
        "repetition_penalty",
        "min_tokens",
        "ignore_eos",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "prompt_logprobs",
        "truncate_prompt_tokens",
    ):
        value = getattr(sampling, name)
        if value != getattr(neutral, name):
            yield name, value
    for name in ("stop_token_ids", "bad_words", "allowed_token_ids"):
        if ids := getattr(sampling, name):
            yield name, list(ids)
    if prompt.template_variables:
        yield "chat_template_kwargs", orjson.Fragment(prompt.template_variables)


def _check_taken(target: Target, extra: str, param: str) -> None:
    if extra not in target.extras:
        text = f"{param}: {target.name}, which answers for this model, does not take it. Leave it out."
        raise RequestFailed.because("unsupported_parameter", text, stop="llm_gateway", param=param)
