"""From a handoff's work to what the engine is asked: messages, tools, sampling, the answer's form. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from baton_contracts.handoffs import EngineWork
from baton_contracts.prompt import Message, Prompt, Sampling, Tool
from baton_engine import (
    EngineRequest,
    InvalidParameter,
    OutputFormat,
    RequestRejected,
    SamplingParams,
    StructuredOutput,
)
from baton_engine.text.reasoning import CLOSING, has_closed_thinking, opens_thinking
from baton_engine_worker.dialect import Dialect
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.structures import leaves_no_room, structure_of
from baton_engine_worker.tool_prompting import in_plain_words

Defaults = dict[str, Any]
"""generation_config.json of the model."""

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


def engine_request(
    work: EngineWork,
    prompt_token_ids: list[int],
    engine: Engine,
    dialect: Dialect,
    *,
    request_id: str,
    default_max_tokens: int,
    room: int,
    seed: int | None = None,
    ease: bool = False,
) -> EngineRequest:
    """`room`: tokens that one request can have in all. `seed`: where the client gave none. `ease`: schemas of
    calls that may be made are not kept to, but strict ones. Raises InvalidParameter."""
    if work.adapter:
        raise InvalidParameter("model", f"Adapter {work.adapter!r} is not here: this engine loads none.")
    prompt = truncated(prompt_token_ids, work.sampling, room)
    bound = max_tokens(work, len(prompt), default=default_max_tokens, room=room)
    held = leaves_no_room(work)
    thinks = dialect.thinks and work.prompt.rendering != "raw"
    opened = thinks and opens_thinking(prompt, engine.tokenizer)
    structure = structure_of(
        work,
        dialect,
        after=CLOSING if held and opened else "",
        calls_after=CLOSING if opened else None if thinks and not _thought(prompt, engine) else "",
        ease=ease,
    )
    return EngineRequest(
        request_id=request_id,
        prompt_token_ids=prompt,
        sampling=sampling_params(work.sampling, engine.generation_defaults, bound, structure, seed),
        resume_token_ids=work.resume_token_ids,
        resume_others=work.resume_others,
        cache_salt=work.cache_salt,
        priority=work.priority,
        output_format=output_format(work, dialect, only_structure=held and not opened),
    )


def seed_of_run(request_id: str, run_id: str) -> int:
    """For an answer that is drawn without a seed of its client's: unlike any other's, and the same on every
    replica, so that it goes on elsewhere as it would have here."""
    digest = hashlib.blake2b(f"{request_id}/{run_id}".encode(), digest_size=8, person=b"baton.run").digest()
    return int.from_bytes(digest, "little") >> 1


def _thought(prompt: Sequence[int], engine: Engine) -> bool:
    return has_closed_thinking(prompt, engine.tokenizer)


def output_format(work: EngineWork, dialect: Dialect, *, only_structure: bool = False) -> OutputFormat:
    """What is told apart in the answer: thinking, if the model does, and calls of the offered tools. Behind a
    raw prompt all is text, whatever it looks like."""
    names = frozenset(tool.name for tool in work.prompt.tools)
    if work.prompt.rendering == "raw":
        return OutputFormat()
    thinks = dialect.thinks and not only_structure
    if not names or work.tool_choice.mode == "none":
        return OutputFormat(reasoning=thinks)
    return OutputFormat(
        reasoning=thinks,
        tool_calls=dialect.tool_format,
        tool_names=names,
        one_call=not work.tool_choice.parallel,
    )


def truncated(token_ids: list[int], sampling: Sampling, room: int) -> list[int]:
    """The last tokens of the prompt, if the client asked that it be cut."""
    keep = sampling.truncate_prompt_tokens
    if keep is None:
        return token_ids
    if keep == -1:
        keep = max(1, room - max(sampling.max_tokens or 1, sampling.min_tokens))
    return token_ids[-keep:]


def sampling_params(
    asked: Sampling,
    defaults: Defaults,
    max_tokens: int,
    structured: StructuredOutput | None = None,
    seed: int | None = None,
) -> SamplingParams:
    """The model's own defaults, and `seed`, where the client said nothing. Raises InvalidParameter."""
    fallback = SamplingParams()
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=asked.min_tokens,
        temperature=_chosen(asked.temperature, defaults, "temperature", fallback.temperature),
        top_p=_chosen(asked.top_p, defaults, "top_p", fallback.top_p),
        top_k=int(_chosen(asked.top_k, defaults, "top_k", fallback.top_k)),
        min_p=_chosen(asked.min_p, defaults, "min_p", fallback.min_p),
        seed=seed if asked.seed is None else asked.seed,
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
        structured=structured,
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
