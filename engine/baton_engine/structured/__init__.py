"""Answers held to a structure: JSON, a JSON schema, a regular expression, a choice, a grammar, tool calls.

One request's way through the files: `output.py` says what is wanted and checks its bounds, `grammar_text.py`
writes it for the mask library, `compiler.py` compiles it off the engine's loop and keeps it, `matcher.py`
follows one answer's tokens, `mask.py` makes every other token of a step impossible. Docs: ADR 15.
"""

from baton_engine.structured.output import StructuredOutput

__all__ = ["StructuredOutput"]
