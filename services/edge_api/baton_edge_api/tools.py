"""Tools of a request: what may be called, what must be, and whether earlier calls and their results fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from baton_contracts import openai_tools as wire_tools
from baton_contracts.openai_requests import (
    AssistantMessage,
    ChatCompletionRequest,
    ChatMessage,
    FunctionMessage,
    ToolMessage,
)
from baton_contracts.prompt import Tool, ToolCall, ToolChoice
from baton_edge_api.json_words import as_text, plain_json
from baton_edge_api.refusals import bad_value


def tools_of(wire: ChatCompletionRequest) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The tools that may be called, and whether one must be. Raises RequestFailed."""
    if wire.functions is not None or wire.function_call is not None:
        return _functions_of(wire)
    tools = tuple(
        _tool(tool.function, f"tools[{index}].function") for index, tool in enumerate(wire.tools or ())
    )
    check_names(tools, "tools[{}].function.name")
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
        require_known(name, tools, "tool_choice")
        return tools, ToolChoice(mode="required", name=name, parallel=parallel)
    allowed = {each.function.name for each in choice.allowed_tools.tools}
    for name in sorted(allowed):
        require_known(name, tools, "tool_choice.allowed_tools.tools")
    chosen = tuple(tool for tool in tools if tool.name in allowed)
    return chosen, ToolChoice(mode=choice.allowed_tools.mode, parallel=parallel)


def _functions_of(wire: ChatCompletionRequest) -> tuple[tuple[Tool, ...], ToolChoice]:
    """The older form: one call an answer."""
    if wire.tools is not None or wire.tool_choice is not None:
        raise bad_value("functions", "the older form of tools; give only one of them.")
    given = wire.functions or ()
    tools = tuple(_tool(function, f"functions[{index}]") for index, function in enumerate(given))
    check_names(tools, "functions[{}].name")
    choice = wire.function_call
    if choice is None or choice == "auto":
        return tools, ToolChoice(parallel=False)
    if choice == "none":
        return tools, ToolChoice(mode="none", parallel=False)
    require_known(choice.name, tools, "function_call")
    return tools, ToolChoice(mode="required", name=choice.name, parallel=False)


def _tool(function: wire_tools.FunctionDefinition, param: str) -> Tool:
    given = function.parameters
    return Tool(
        name=function.name,
        description=function.description or "",
        parameters="" if given is None else as_text(given, f"{param}.parameters"),
        strict=bool(function.strict),
    )


def check_names(tools: tuple[Tool, ...], place: str) -> None:
    seen: set[str] = set()
    for index, tool in enumerate(tools):
        if tool.name in seen:
            raise bad_value(place.format(index), f"{tool.name!r} stands twice.")
        seen.add(tool.name)


def require_known(name: str, tools: Iterable[Tool], param: str) -> None:
    if all(tool.name != name for tool in tools):
        raise bad_value(param, f"{name!r} is not among those given.")


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


def answered_function(messages: Sequence[ChatMessage], index: int) -> str:
    """The id, made up here, of the call that the function message at `index` answers: the last one before it,
    which must be of that function. Raises RequestFailed."""
    asked = messages[index]
    for place in range(index - 1, -1, -1):
        before = messages[place]
        call = before.function_call if isinstance(before, AssistantMessage) else None
        if call is not None:
            if isinstance(asked, FunctionMessage) and call.name == asked.name:
                return _old_call_id(place)
            break
    raise bad_value(f"messages[{index}].name", "no message before this one has a call of this function.")


def _old_call_id(place: int) -> str:
    return f"function-call-{place}"


def called(message: AssistantMessage, place: int) -> tuple[ToolCall, ...]:
    """`place`: of the message. A call in the older form gets an id of its own."""
    given = [(call.id, call.function) for call in message.tool_calls or ()]
    if message.function_call is not None:
        given.append((_old_call_id(place), message.function_call))
    return tuple(
        ToolCall(call_id=call_id, name=function.name, arguments=plain_json(function.arguments))
        for call_id, function in given
    )
