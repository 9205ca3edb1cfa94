"""A structure, written for the mask library. Owns the translation; knows no tokens and no limits.

The library takes a list of grammars: the first is where the answer starts, the others are parts of it that
the first names with an @.
"""

from __future__ import annotations

import json
from typing import Any

from llguidance import regex_to_lark
from llguidance.gbnf_to_lark import any_to_lark

from baton_engine.structured.json_rules import enforceable
from baton_engine.structured.output import StructuredOutput, UnusableStructure


def grammar_text(wanted: StructuredOutput) -> str:
    """Raises UnusableStructure for a grammar that can't be read. All else shows when it is compiled."""
    parts = _parts(wanted)
    if wanted.after:
        lead = f"start: lead @structure\nlead[suffix={quoted(wanted.after)}]: /(.|\\n)*/"
        parts = [{"name": "answer", "lark_grammar": lead}, *parts]
    return json.dumps({"grammars": parts}, ensure_ascii=False)


def quoted(text: str) -> str:
    """`text` as a literal of a Lark grammar."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def structure_part(wanted: StructuredOutput) -> dict[str, Any]:
    """A structure that is one grammar, for others to name. Raises UnusableStructure as above."""
    (part,) = _parts(wanted)
    return part


def _parts(wanted: StructuredOutput) -> list[dict[str, Any]]:
    match wanted.kind:
        case "json_schema":
            return [{"name": "structure", "json_schema": enforceable(json.loads(wanted.text))}]
        case "regex":
            return [_lark(f"start: /{regex_to_lark(wanted.text, use_ascii='')}/")]
        case "choice":
            return [_lark("start: " + " | ".join(map(quoted, json.loads(wanted.text))))]
        case "grammar":
            return [_lark(_as_lark(wanted.text))]
        case "tool_calls":
            return json.loads(wanted.text)


def _lark(text: str) -> dict[str, Any]:
    return {"name": "structure", "lark_grammar": text}


def _as_lark(text: str) -> str:
    try:
        return any_to_lark(text)
    except RecursionError as error:
        raise UnusableStructure("the grammar nests too deep.") from error
    except Exception as error:  # the converter raises bare Exception, too
        raise UnusableStructure(f"the grammar is neither Lark nor GBNF: {error}") from error
