"""Tools of a request: what may be called, what must be, and whether earlier calls and their results fit."""

from __future__ import annotations

from collections.abc import Iterable

from baton_contracts import openai_tools as wire_tools
from baton_contracts.openai_requests import AssistantMessage, ChatCompletionRequest, ToolMessage
from baton_contracts.prompt import Tool, ToolCall, ToolChoice
from baton_edge_api.json_words import as_text, plain_json
from baton_edge_api.refusals import bad_value


def tools_of(wire: ChatCompletionRequest) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called, and whether one must be. Raises RequestFailed."""
    tools = tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(wire.tools or ()))
    _check_names(tools)
    choice = wire.tool_choice
    parallel = wire.parallel_tool_calls is not False
    if choice is None:
        return tools, ToolChoice(parallel=parallel)
    if not tools:
        if choice == "none":
            return (), ToolChoice(mode="none", parallel=parallel)
        raise bad_value("tool_choice", "only allowed when tools are given.")
    if isinstance(choice, str):
        return tools, ToolChoice(mode=choice, parallel=parallel)
    if isinstance(choice, wire_tools.NamedTool):
        name = choice.function.name
        _require_known(name, tools, "tool_choice")
        return tools, ToolChoice(mode="required", name=name, parallel=parallel)
    allowed = {each.function.name for each in choice.allowed_tools.tools}
    for name in sorted(allowed):
        _require_known(name, tools, "tool_choice.allowed_tools.tools")
    chosen = tuple(tool for tool in tools if tool.name in allowed)
    return chosen, ToolChoice(mode=choice.allowed_tools.mode, parallel=parallel)


def _tool(tool: wire_tools.FunctionTool, param: str) -> Tool:
    function = tool.function
    given = function.parameters
    return Tool(
        name=function.name,
        description=function.description or "",
        parameters="" if given is None else as_text(given, f"{param}.function.parameters"),
        strict=bool(function.strict),
    )


def _check_names(tools: tuple[Tool, ...]) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise bad_value(f"tools[{index}].function.name", f"{tool.name!r} stands twice in tools.")
        seen.add(tool.name)


def _require_known(name: str, tools: Iterable[Tool], param: str) -> None:
    if all(tool.name != name for tool in tools):
        raise bad_value(param, f"{name!r} is not among tools.")


def check_calls(wire: ChatCompletionRequest) -> None:
    """Each result answers a call that stands before it; those of a stored conversation can't be seen here."""
    known: set[str] = set()
    for index, message in enumerate(wire.messages):
        if isinstance(message, AssistantMessage):
            known.update(call.id for call in message.tool_calls or ())
        elif wire.conversation_id is None and isinstance(message, ToolMessage):
            _require_call(message.tool_call_id, known, f"messages[{index}].tool_call_id")


def _require_call(call_id: str, known: set[str], param: str) -> None:
    if call_id not in known:
        raise bad_value(param, "no message before this one has a tool call of this id.")


def called(message: AssistantMessage) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(call_id=call.id, name=call.function.name, arguments=plain_json(call.function.arguments))
        for call in message.tool_calls or ()
    )
