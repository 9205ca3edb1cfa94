"""What structure one answer must have. Owns the bounds on what a caller may ask for, all of them checkable
at once; knows no tokens and not the mask library: whether a schema or a grammar is sound shows when it is
compiled.

JSON is written with at most one space between its marks, and nothing behind it: a weak model can't run into
endless whitespace. An answer ends where its structure does, whatever min_tokens and ignore_eos say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from baton_engine.errors import InvalidParameter

MAX_TEXT_BYTES: Final = 256 * 1024
MAX_GRAMMAR_BYTES: Final = 64 * 1024
MAX_SCHEMA_DEPTH: Final = 100
MAX_CHOICES: Final = 10_000

StructureKind = Literal["json_schema", "regex", "choice", "grammar", "tool_calls"]
KINDS: Final[tuple[StructureKind, ...]] = ("json_schema", "regex", "choice", "grammar", "tool_calls")


class UnusableStructure(Exception):
    """Why a structure can't be compiled, without the name of a parameter: several callers may share one."""


@dataclass(frozen=True)
class StructuredOutput:
    """Exactly one of the first six. Raises InvalidParameter, which names `param`, from the constructor.

    json_object: any JSON object.  json_schema: the schema as a value or as JSON text.  regex: the whole
    answer, Rust's syntax, no look-around.  choice: one of these texts.  grammar: Lark as llguidance extends
    it, or GBNF.  tool_calls: what `structured.tool_calls.constraint` makes, and nobody else.
    after: free text, up to and with this mark, comes before the structure (the end of a model's reasoning).
    param: the name that the caller's API has for all this, for error messages.
    """

    json_object: bool = False
    json_schema: Any = None
    regex: str | None = None
    choice: Sequence[str] | None = None
    grammar: str | None = None
    tool_calls: str | None = None
    after: str = ""
    param: str = "structured_outputs"
    kind: StructureKind = field(init=False)
    text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        given: list[StructureKind] = [name for name in KINDS if getattr(self, name) is not None]
        if len(given) + self.json_object != 1:
            what = ", ".join((["json_object"] if self.json_object else []) + [*map(str, given)]) or "none"
            raise self.refusal(f"exactly one structure has to be asked for, not {what}.")
        kind: StructureKind = given[0] if given else "json_schema"
        require_text(self.after, self.param)
        object.__setattr__(self, "kind", kind)
        object.__setattr__(self, "text", self._checked_text(kind))

    @property
    def key(self) -> tuple[str, str, str]:
        """Equal keys need one grammar."""
        return self.kind, self.text, self.after

    def refusal(self, why: str) -> InvalidParameter:
        return InvalidParameter(self.param, f"{self.param} can't be used: {why}")

    def _checked_text(self, kind: StructureKind) -> str:
        value = {"type": "object"} if self.json_object else getattr(self, kind)
        if kind == "json_schema":
            text = self._schema_text(value)
        elif kind == "choice":
            text = self._choice_text(value)
        elif isinstance(value, str) and value:
            text = value
        else:
            raise self.refusal(f"{kind} must be a text that is not empty.")
        require_text(text, self.param)
        limit = MAX_GRAMMAR_BYTES if kind in ("regex", "grammar") else MAX_TEXT_BYTES
        size = len(text.encode())
        if size > limit:
            raise self.refusal(f"{kind} has {size} bytes; at most {limit} are taken.")
        return text

    def _schema_text(self, schema: Any) -> str:
        if isinstance(schema, str):
            schema = self._parsed(schema)
        if not isinstance(schema, (Mapping, bool)):
            raise self.refusal("a JSON schema must be an object or a boolean.")
        if is_deeper_than(schema, MAX_SCHEMA_DEPTH):
            raise self.refusal(f"the JSON schema nests over {MAX_SCHEMA_DEPTH} levels deep.")
        try:
            return json.dumps(schema, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise self.refusal(f"the JSON schema is not JSON: {error}") from error

    def _parsed(self, text: str) -> Any:
        if len(text) > MAX_TEXT_BYTES:
            raise self.refusal(f"json_schema has {len(text)} bytes; at most {MAX_TEXT_BYTES} are taken.")
        try:
            return json.loads(text)
        except RecursionError as error:
            raise self.refusal(f"the JSON schema nests over {MAX_SCHEMA_DEPTH} levels deep.") from error
        except ValueError as error:
            raise self.refusal(f"the JSON schema is not JSON: {error}") from error

    def _choice_text(self, choice: Any) -> str:
        if isinstance(choice, str) or not isinstance(choice, Sequence) or not choice:
            raise self.refusal("choice must be a list of texts.")
        if len(choice) > MAX_CHOICES:
            raise self.refusal(f"choice has {len(choice)} texts; at most {MAX_CHOICES} are taken.")
        if not all(isinstance(text, str) and text for text in choice):
            raise self.refusal("choice must hold texts that are not empty, and nothing else.")
        return json.dumps(list(choice), ensure_ascii=False)


def require_text(text: str, param: str) -> None:
    """Half of a surrogate pair is no character: no answer could hold it."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidParameter(param, f"{param} can't be used: it holds half of a character.") from error


def is_deeper_than(value: Any, limit: int) -> bool:
    """Without recursion: what is checked here may be deeper than Python's stack."""
    level = [value]
    for _ in range(limit + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    parts = (
        value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    )
    return [part for part in parts if isinstance(part, (Mapping, list, tuple))]
