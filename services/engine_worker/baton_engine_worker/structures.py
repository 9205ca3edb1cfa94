"""Which structure an answer is held to: calls of tools that must be made, or the form that was asked for.

Pure. What a structure means is the engine's; the names in its refusals are the client's.
"""

from __future__ import annotations

from typing import Any

from baton_contracts import prompt as contract
from baton_contracts.handoffs import EngineWork
from baton_engine import StructuredOutput
from baton_engine.structured import tool_calls
from baton_engine_worker.dialect import Dialect


def structure_of(
    work: EngineWork,
    dialect: Dialect,
    *,
    after: str = "",
    calls_after: str | None = "",
    ease: bool = False,
) -> StructuredOutput | None:
    """after: the mark up to which the answer is free, the end of its thinking.
    calls_after: the same for calls that may be made; None: it can't be known whether the model will think.
    ease: see `can_be_eased`. Raises InvalidParameter.
    """
    choice, asked, tools = work.tool_choice, work.sampling.structured, work.prompt.tools
    form = _form(asked, after) if asked else None
    if choice.mode == "auto" and form and tools:
        return _calls(work, dialect, after, otherwise=form)
    if choice.mode == "auto" and _holds_free_calls(work, dialect, calls_after):
        return tool_calls.calls_in_text(
            _functions(work), dialect.tool_format, ease=ease, after=calls_after or ""
        )
    if choice.mode == "required":  # an answer of nothing but calls has no text that could have a form
        return _calls(work, dialect, after)
    return form


def _holds_free_calls(work: EngineWork, dialect: Dialect, calls_after: str | None) -> bool:
    """Strict ones always. Others where that can't cost the answer: not beside a rule that may leave no token,
    nor where thinking could name a call, nor where a list that is no call would have to become one."""
    tools = work.prompt.tools
    if any(tool.strict for tool in tools):
        return True
    if dialect.tool_format == "pythonic":
        return False
    return bool(tools) and work.sampling.allowed_token_ids is None and calls_after is not None


def can_be_eased(work: EngineWork) -> bool:
    """True: some schemas need not be kept to, so one that can't be enforced may be no reason to refuse."""
    free = work.tool_choice.mode == "auto" and work.sampling.structured is None
    return free and any(not tool.strict for tool in work.prompt.tools)


def _calls(
    work: EngineWork, dialect: Dialect, after: str, otherwise: StructuredOutput | None = None
) -> StructuredOutput:
    return tool_calls.constraint(
        _functions(work),
        work.tool_choice.name,
        dialect.tool_format,
        parallel=work.tool_choice.parallel,
        otherwise=otherwise,
        after=after,
    )


def _functions(work: EngineWork) -> list[dict[str, Any]]:
    tools = work.prompt.tools
    return [{"name": each.name, "parameters": each.parameters, "strict": each.strict} for each in tools]


def leaves_no_room(work: EngineWork) -> bool:
    """True: the answer begins with its structure, so that there is no thinking before it."""
    forced = work.tool_choice.mode == "required" and bool(work.prompt.tools)
    return forced or work.sampling.structured is not None


def _form(asked: contract.StructuredOutput, after: str) -> StructuredOutput:
    match asked.kind:
        case "json_object":
            return StructuredOutput(json_object=True, after=after, param=asked.param)
        case "json_schema":
            return StructuredOutput(json_schema=asked.text, after=after, param=asked.param)
        case "regex":
            return StructuredOutput(regex=asked.text, after=after, param=asked.param)
        case "choice":
            return StructuredOutput(choice=asked.choices, after=after, param=asked.param)
        case "grammar":
            return StructuredOutput(grammar=asked.text, after=after, param=asked.param)
