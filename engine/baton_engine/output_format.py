"""The parts of an answer besides its text: as a caller asks for them, and as they are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

ToolCallFormat = Literal["hermes", "llama3_json", "pythonic"]


@dataclass(frozen=True)
class OutputFormat:
    """Which parts are told apart; the default: none, all is text.

    reasoning: `<think>…</think>` at the beginning, or what stands before `</think>` where the prompt ends
        inside that block (reasoning_opened, which admission finds out).
    tool_calls: the form in which the model writes calls.
    tool_names: the functions that were offered; None: unknown, so that any name may be one.
    one_call: the answer ends with its first whole call.
    """

    reasoning: bool = False
    reasoning_opened: bool = False
    tool_calls: ToolCallFormat | None = None
    tool_names: frozenset[str] | None = None
    one_call: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.reasoning and self.tool_calls is None


PLAIN: Final = OutputFormat()


@dataclass(frozen=True)
class ToolCallDelta:
    """A step's addition to one call: id and name come first and once, then pieces of the JSON arguments.

    is_whole: the arguments are complete. A call that never gets there was cut and can't be run.
    """

    index: int
    call_id: str | None = None
    name: str | None = None
    arguments: str = ""
    is_whole: bool = False

    def then(self, later: ToolCallDelta) -> ToolCallDelta:
        """Both, of one call, as one."""
        return ToolCallDelta(
            self.index,
            self.call_id or later.call_id,
            self.name or later.name,
            self.arguments + later.arguments,
            self.is_whole or later.is_whole,
        )
