"""From the JSON of a body to a model of the HTTP contract, and from what is wrong with it to the error that
names it.

Owns what is forgiven: `8.0` where a whole number belongs, as JSON Schema has it. What the values mean is each
reader's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from baton_common.errors import RequestFailed
from baton_contracts.errors import ErrorCode
from baton_contracts.openai_base import TAG_MARK
from baton_contracts.openai_requests import UNKNOWN_ROLE
from baton_edge_api.json_text import NotJson, parse_json
from baton_edge_api.refusals import not_served

_OTHER_PARTS = ("image_url", "input_audio", "file", "refusal", "video_url", "audio_url")
_OTHER_TOOLS = ("custom", "web_search", "file_search", "code_interpreter", "image_generation", "mcp")
_OTHER_FORMATS = ("grammar", "python", "structural_tag")
_OTHER_RESPONSE_PARTS = ("input_image", "input_file", "input_audio")
_OTHER_RESPONSE_TOOLS = (
    "web_search_preview",
    "computer",
    "computer_use_preview",
    "local_shell",
    "shell",
    "apply_patch",
    "tool_search",
    "namespace",
)
_OTHER_ITEMS = (
    "file_search_call",
    "web_search_call",
    "computer_call",
    "computer_call_output",
    "code_interpreter_call",
    "image_generation_call",
    "local_shell_call",
    "local_shell_call_output",
    "shell_call",
    "shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "custom_tool_call",
    "custom_tool_call_output",
    "compaction",
)
_KNOWN_TYPES = (
    *_OTHER_PARTS,
    *_OTHER_TOOLS,
    *_OTHER_FORMATS,
    *_OTHER_RESPONSE_PARTS,
    *_OTHER_RESPONSE_TOOLS,
    *_OTHER_ITEMS,
)
"""Types that others serve: not wrong, but not had here."""
_TYPE_ERRORS = ("int_from_float", "int_parsing", "float_parsing", "bool_parsing", "model_attributes_type")


M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

_BIG_BODY = 256 * 1024

_EXACT = 2.0**53
"""Beyond it a float may stand for several whole numbers."""


async def understood(body: bytes, read: Callable[[bytes], T]) -> T:
    """What `read` makes of it; of a big one in a thread, so that other streams go on."""
    return await asyncio.to_thread(read, body) if len(body) > _BIG_BODY else read(body)


def parsed(body: bytes) -> Any:
    """Raises RequestFailed."""
    try:
        return parse_json(body)
    except NotJson as error:
        raise RequestFailed.because("invalid_json", f"The body is not valid JSON: {error}.") from None


def typed(model: type[M], raw: Any) -> M:
    """Raises RequestFailed, naming the parameter. May write whole numbers into `raw` as such."""
    if not isinstance(raw, dict):
        raise RequestFailed.because("invalid_type", "The body must be a JSON object.")
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
    if _make_whole(cast("object", raw)):
        return typed(model, raw)
    raise explain(problem)


def _make_whole(raw: object) -> bool:
    """Whether there were floats that are whole numbers. Without recursion: a body may be nested deeply."""
    found, waiting = False, [raw]
    while waiting:
        at = waiting.pop()
        for place, item in _places(at):
            if isinstance(item, float) and item.is_integer() and abs(item) <= _EXACT:
                cast("Any", at)[place] = int(item)
                found = True
            else:
                waiting.append(item)
    return found


def _places(at: object) -> list[tuple[Any, object]]:
    if isinstance(at, dict):
        return list(cast("dict[Any, object]", at).items())
    return list(enumerate(cast("list[object]", at))) if isinstance(at, list) else []


def explain(problem: ErrorDetails) -> RequestFailed:
    """The OpenAI form of one pydantic error. Only names and types go into the message, never values."""
    kind = problem["type"]
    param = param_path((*problem["loc"], "role") if kind == UNKNOWN_ROLE else problem["loc"])
    if kind == "missing":
        return RequestFailed.because("missing_required_parameter", f"{param} is missing.", param=param)
    if kind == "literal_error" and param.endswith(".type") and problem["input"] in _KNOWN_TYPES:
        return not_served(param, f"this type is not served. {_sentence(problem['msg'])}")
    wrong_type = kind.endswith("_type") or kind in _TYPE_ERRORS
    code: ErrorCode = "invalid_type" if wrong_type else "invalid_value"
    return RequestFailed.because(code, f"{param}: {_sentence(problem['msg'])}", param=param)


def _sentence(text: str) -> str:
    return text if text.endswith(".") else text + "."


def param_path(loc: tuple[int | str, ...]) -> str:
    """`messages[0].content[1].type`, as OpenAI names parameters."""
    path = ""
    for step in loc:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith(TAG_MARK):
            path += f".{step}" if path else step
    return path[:128]
