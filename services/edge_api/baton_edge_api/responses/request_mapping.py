"""A validated /v1/responses request in the relay's own words. Owns what each parameter means there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from baton_contracts.openai_formats import TextFormat
from baton_contracts.openai_responses import (
    LOGPROBS,
    NamedFunction,
    ResponseFunctionTool,
    ResponseRequest,
    ResponseSchemaFormat,
)
from baton_contracts.prompt import ChatRequest, Message, Part, Sampling, StructuredOutput, Tool, ToolChoice
from baton_edge_api.chat_mapping import retrieval_mode, template_variables
from baton_edge_api.json_words import as_text
from baton_edge_api.refusals import bad_value
from baton_edge_api.responses.items import Placed, messages_of
from baton_edge_api.tools import check_names, require_known


def chat_request(wire: ResponseRequest, placed: Iterable[Placed]) -> ChatRequest:
    """`placed`: all items that the model is shown, in order. Raises RequestFailed, naming the parameter."""
    tools, choice = _tools(wire)
    messages = messages_of(placed)
    if not messages:
        raise bad_value("input", "there is nothing in it that could be answered.")
    return ChatRequest(
        model=wire.model,
        messages=(*_instructions(wire), *messages),
        tools=tools,
        tool_choice=choice,
        template_variables=template_variables(
            wire.chat_template_kwargs, wire.reasoning.effort if wire.reasoning else None
        ),
        sampling=_sampling(wire),
        priority=wire.priority or 0,
        cache_salt=wire.cache_salt or "",
        stream=bool(wire.stream),
        retrieval=retrieval_mode(wire.retrieval),
        continue_conversation=wire.conversation is not None,
        trim_history=wire.truncation == "auto",
    )


def _instructions(wire: ResponseRequest) -> Sequence[Message]:
    if not wire.instructions:
        return ()
    return (Message(role="system", parts=(Part(text=wire.instructions),)),)


def _sampling(wire: ResponseRequest) -> Sampling:
    stop = wire.stop or ()
    return Sampling(
        max_tokens=wire.max_output_tokens,
        temperature=wire.temperature,
        top_p=wire.top_p,
        top_k=None if wire.top_k is None else max(wire.top_k, 0),
        min_p=wire.min_p,
        seed=wire.seed,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        presence_penalty=wire.presence_penalty or 0.0,
        frequency_penalty=wire.frequency_penalty or 0.0,
        repetition_penalty=wire.repetition_penalty,
        logprobs=(wire.top_logprobs or 0) if LOGPROBS in (wire.include or ()) else None,
        truncate_prompt_tokens=-1 if wire.truncation == "auto" else None,
        structured=_structured(wire),
    )


def _structured(wire: ResponseRequest) -> StructuredOutput | None:
    asked = wire.text.format if wire.text else None
    if asked is None or isinstance(asked, TextFormat):
        return None
    if isinstance(asked, ResponseSchemaFormat):
        schema = as_text(asked.schema_, "text.format.schema")
        return StructuredOutput(kind="json_schema", text=schema, param="text.format")
    return StructuredOutput(kind="json_object", param="text.format")


def _tools(wire: ResponseRequest) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called, and whether one must be."""
    tools = tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(wire.tools or ()))
    check_names(tools, "tools[{}].name")
    choice = wire.tool_choice
    parallel = wire.parallel_tool_calls is not False
    match choice:
        case None | "auto":
            return tools, ToolChoice(parallel=parallel)
        case "none":
            return tools, ToolChoice(mode="none", parallel=parallel)
        case "required":
            if not tools:
                raise bad_value("tool_choice", "must not be required where there are no tools.")
            return tools, ToolChoice(mode="required", parallel=parallel)
        case NamedFunction():
            require_known(choice.name, tools, "tool_choice")
            return tools, ToolChoice(mode="required", name=choice.name, parallel=parallel)
        case _:
            allowed = {each.name for each in choice.tools}
            for name in sorted(allowed):
                require_known(name, tools, "tool_choice.tools")
            chosen = tuple(tool for tool in tools if tool.name in allowed)
            return chosen, ToolChoice(mode=choice.mode, parallel=parallel)
    assert_never(choice)


def _tool(tool: ResponseFunctionTool, param: str) -> Tool:
    given = tool.parameters
    return Tool(
        name=tool.name,
        description=tool.description or "",
        parameters="" if given is None else as_text(given, f"{param}.parameters"),
        strict=tool.strict is not False,
    )
