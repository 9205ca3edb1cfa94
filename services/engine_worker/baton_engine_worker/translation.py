"""Between the contract's words and the engine's: prompt, sampling, refusals, usage, timings. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from baton_contracts import frames
from baton_contracts.errors import ErrorBody, ErrorCode
from baton_contracts.handoffs import EngineWork
from baton_contracts.prompt import Message, Prompt, Sampling, Tool
from baton_engine import (
    EngineError,
    InvalidParameter,
    RequestDelta,
    RequestFailure,
    RequestRejected,
    SamplingParams,
    Timings,
    Usage,
)

Defaults = dict[str, Any]
"""generation_config.json of the model."""

NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}
"""The schema of a function that takes none."""

_CODES: dict[str, ErrorCode] = {
    "context_length_exceeded": "context_length_exceeded",
    "queue_full": "queue_full",
    "kv_capacity_exceeded": "kv_exhausted",
    "duplicate_request": "conflict",
}

_CLIENTS_NAMES = {"logprobs": "top_logprobs", "prompt": "messages"}
"""Parameters of the engine that clients know by another name."""


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


def prompt_token_ids(prompt: Prompt, tokenizer: Any) -> list[int]:
    """Raises RequestRejected if the model's template does not take these messages."""
    messages, tools = chat_messages(prompt), chat_tools(prompt.tools)
    variables = (
        _json_object(prompt.template_variables, "chat_template_kwargs") if prompt.template_variables else {}
    )
    try:
        return tokenizer.apply_chat_template(messages, tools, **variables)
    except RequestRejected:
        raise
    except Exception as error:
        raise InvalidParameter("messages", f"The model's chat template failed on them: {error}") from error


def truncated(token_ids: list[int], sampling: Sampling, room: int) -> list[int]:
    """The last tokens of the prompt, if the client asked that it be cut."""
    keep = sampling.truncate_prompt_tokens
    if keep is None:
        return token_ids
    if keep == -1:
        keep = max(1, room - max(sampling.max_tokens or 1, sampling.min_tokens))
    return token_ids[-keep:]


def sampling_params(asked: Sampling, defaults: Defaults, max_tokens: int) -> SamplingParams:
    """The model's own defaults where the client said nothing. Raises InvalidParameter."""
    fallback = SamplingParams()
    if asked.structured is not None:
        raise InvalidParameter(asked.structured.param, f"{asked.structured.param} is not served yet.")
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=asked.min_tokens,
        temperature=_chosen(asked.temperature, defaults, "temperature", fallback.temperature),
        top_p=_chosen(asked.top_p, defaults, "top_p", fallback.top_p),
        top_k=int(_chosen(asked.top_k, defaults, "top_k", fallback.top_k)),
        min_p=_chosen(asked.min_p, defaults, "min_p", fallback.min_p),
        seed=asked.seed,
        stop=asked.stop,
        stop_token_ids=asked.stop_token_ids,
        ignore_eos=asked.ignore_eos,
        include_stop_str_in_output=asked.include_stop_str_in_output,
        skip_special_tokens=asked.skip_special_tokens,
        allowed_token_ids=asked.allowed_token_ids,
        bad_words=asked.bad_words,
        logit_bias=asked.logit_bias,
        repetition_penalty=_chosen(
            asked.repetition_penalty, defaults, "repetition_penalty", fallback.repetition_penalty
        ),
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logprobs=asked.logprobs,
        prompt_logprobs=asked.prompt_logprobs,
        n=asked.n,
    )


def _chosen(asked: float | None, defaults: Defaults, name: str, fallback: float) -> float:
    if asked is not None:
        return asked
    default = defaults.get(name)
    return fallback if default is None else default


def max_tokens(work: EngineWork, prompt_tokens: int, *, default: int, room: int) -> int:
    """What the client asked for, as it is: too much is the engine's to refuse. Otherwise `default`, or less
    where the `room` (tokens of prompt and answer together) is nearly used up."""
    if work.sampling.max_tokens is not None:
        return work.sampling.max_tokens
    return max(1, work.sampling.min_tokens, min(default, room - prompt_tokens))


def refusal(error: EngineError, instance: str) -> ErrorBody:
    """Why the engine did not take the request: for the router, and for a client whose fault it is."""
    if not isinstance(error, RequestRejected):
        message = f"{instance} takes no requests now: {error}"
        return ErrorBody(code="no_ready_replica", message=message, stop="engine_worker")
    code = _CODES.get(error.code, "invalid_value")
    param = _CLIENTS_NAMES.get(error.param or "", error.param)
    return ErrorBody(code=code, message=error.message, param=param, stop="engine_worker")


def failure(error: RequestFailure | None) -> ErrorBody:
    """An error that came after the acceptance; another replica may do better."""
    what = f"{error.code}: {error.message}" if error else "no reason given"
    message = f"The engine failed on this request ({what})."
    return ErrorBody(code="stop_failed", message=message, stop="engine_worker")


def usage(counted: Usage | None) -> frames.Usage:
    if counted is None:
        return frames.Usage()
    return frames.Usage(
        prompt_tokens=counted.prompt_tokens,
        cached_tokens=counted.cached_tokens,
        completion_tokens=counted.completion_tokens,
    )


def timings(seen: Timings | None) -> frames.Timings | None:
    if seen is None:
        return None
    return frames.Timings(
        queued_at=seen.queued_at,
        scheduled_at=seen.scheduled_at,
        first_token_at=seen.first_token_at,
        finished_at=seen.finished_at,
    )


def finish_reason(delta: RequestDelta) -> frames.FinishReason:
    """Of a last delta that is not an error."""
    return cast("frames.FinishReason", delta.finish_reason)
