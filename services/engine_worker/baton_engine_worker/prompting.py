"""From a prompt's messages and tools to the tokens that this model's chat template makes of them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from baton_contracts.prompt import Message, Prompt, Tool
from baton_engine import InvalidParameter, RequestRejected
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.tool_prompting import in_plain_words

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
"""The schema of a function that takes none."""


def chat_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """For the chat template: the parts of a message joined. Templates know no developer: a system message."""
    names = {call.call_id: call.name for message in prompt.messages for call in message.tool_calls}
    return [_chat_message(message, names) for message in prompt.messages]


def _chat_message(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    """A tool's result gets the name of its call, which some templates write and clients don't send."""
    called = [
        {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in message.tool_calls
    ]
    result_of = message.tool_call_id
    name = message.name or (names.get(result_of) if result_of else None)
    return (
        {
            "role": "system" if message.role == "developer" else message.role,
            "content": message.text if message.parts else None,
        }
        | ({"name": name} if name else {})
        | ({"tool_calls": called} if called else {})
        | ({"tool_call_id": result_of} if result_of else {})
    )


def chat_tools(tools: Sequence[Tool]) -> list[dict[str, Any]] | None:
    """For the chat template, as in the OpenAI API. Raises InvalidParameter."""
    return [_chat_tool(tool, f"tools[{index}].function") for index, tool in enumerate(tools)] or None


def _chat_tool(tool: Tool, param: str) -> dict[str, Any]:
    parameters = _json_object(tool.parameters, f"{param}.parameters") if tool.parameters else NO_PARAMETERS
    about = {"description": tool.description} if tool.description else {}
    return {"type": "function", "function": {"name": tool.name} | about | {"parameters": parameters}}


def _json_object(text: str, param: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (RecursionError, ValueError):
        value = None
    if not isinstance(value, dict):
        raise InvalidParameter(param, f"{param} is no JSON object.")
    return cast("dict[str, Any]", value)


def prompt_token_ids(prompt: Prompt, tokenizer: Any, dialect: Dialect) -> list[int]:
    """Raises RequestRejected if the model's template does not take these messages."""
    if prompt.rendering == "raw":
        return _raw_token_ids(prompt, tokenizer)
    messages, tools = chat_messages(prompt), chat_tools(prompt.tools)
    if not dialect.template_shows_tools:
        messages, tools = in_plain_words(messages, tools), None
    variables = (
        _json_object(prompt.template_variables, "chat_template_kwargs") if prompt.template_variables else {}
    )
    try:
        return tokenizer.apply_chat_template(messages, tools, **(variables | _opening(prompt)))
    except RequestRejected:
        raise
    except Exception as error:  # a template is the model's program: anything
        raise InvalidParameter("messages", f"The model's chat template failed on them: {error}") from error


def _opening(prompt: Prompt) -> dict[str, Any]:
    """How the text behind the last message begins, where it is not the opening of an answer."""
    match prompt.rendering:
        case "unopened":
            return {"add_generation_prompt": False}
        case "continued":
            return {"add_generation_prompt": False, "continue_final_message": True}
        case _:
            return {}


def ignored_parameters(prompt: Prompt, dialect: Dialect) -> tuple[str, ...]:
    """Those that this model has no use for, by the names of the API."""
    if dialect.takes_effort or '"reasoning_effort"' not in prompt.template_variables:
        return ()
    return ("reasoning_effort",)


def _raw_token_ids(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Guards have judged the text: ids that say something else are refused."""
    text = "".join(message.text for message in prompt.messages)
    if not prompt.token_ids:
        return tokenizer.encode_raw(text, add_special_tokens=prompt.add_special_tokens)
    ids = list(prompt.token_ids)
    if tokenizer.decode(ids, skip_special_tokens=False) != text:
        raise InvalidParameter("prompt", "The prompt's token ids are not those of its text for this model.")
    return ids
