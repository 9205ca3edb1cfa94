"""Renders a model's chat template in a sandbox.

Owns the Jinja environment that templates of the Hugging Face kind expect, and what happens when one
fails. A template comes with a model folder and is code of strangers: it runs in an immutable sandbox,
sees plain JSON values only, and its errors become a 400 for that request. Which of its output is a
control token belongs to `template_marks`; ids belong to the tokenizer.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from baton_engine.errors import ModelLoadError, RequestRejected
from baton_engine.text.chat_messages import template_messages, template_tools
from baton_engine.text.template_marks import Piece, TemplateMarks

# What a caller's own keyword arguments can't replace.
_RESERVED: Final = frozenset({"messages", "tools", "add_generation_prompt"})


class ChatTemplate:
    """One model's template, or its named variants (`default`, `tool_use`, …).

    special_tokens: role → text, such as `bos_token` → `<s>`; templates read them as variables.
    control_tokens: text → id of every added token of the vocabulary.
    """

    def __init__(
        self, sources: Mapping[str, str], special_tokens: Mapping[str, str], control_tokens: Mapping[str, int]
    ) -> None:
        self.sources = dict(sources)
        self._marks = TemplateMarks(control_tokens)
        self._special_tokens = {role: self._marks.mark_text(text) for role, text in special_tokens.items()}
        self._templates = {name: self._compile(name, source) for name, source in sources.items()}
        self._knows_none = {name: "none" in source.lower() for name, source in sources.items()}

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **variables: Any,
    ) -> list[Piece]:
        """Ordinary text and control-token ids in order; RequestRejected carries the template's message."""
        name = self._choose(bool(tools))
        context: dict[str, Any] = {
            **{key: value for key, value in variables.items() if key not in _RESERVED},
            **self._special_tokens,
            "messages": template_messages(messages, keep_none=self._knows_none[name]),
            "tools": template_tools(tools),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            rendered = self._templates[name].render(context)
        except jinja2.TemplateError as error:
            raise _rejected(str(error.message or error)) from error
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise _rejected(f"these messages do not fit it ({type(error).__name__}: {error})") from error
        return self._marks.pieces(rendered)

    def _choose(self, with_tools: bool) -> str:
        if with_tools and "tool_use" in self._templates:
            return "tool_use"
        return "default" if "default" in self._templates else next(iter(self._templates))

    def _compile(self, name: str, source: str) -> jinja2.Template:
        environment = _environment()
        try:
            parsed = environment.parse(source)
            self._marks.mark_template(parsed)
            return environment.from_string(parsed)
        except (jinja2.TemplateError, RecursionError) as error:
            raise ModelLoadError(f"The chat template {name!r} is not valid Jinja: {error}") from error


def _rejected(reason: str) -> RequestRejected:
    message = f"The model's chat template refused the messages: {reason}"
    return RequestRejected("chat_template_error", "messages", message)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationTag]
    )
    environment.filters["tojson"] = _tojson
    functions: dict[str, Any] = {
        "raise_exception": _raise_exception,
        "strftime_now": _strftime_now,
        "namespace": _PlainNamespace,
        "dict": _make_dict,
    }
    environment.globals.update(functions)
    return environment


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML and sorts keys; models were trained without either."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().astimezone().strftime(pattern)


def _make_dict(*arguments: Any, **values: Any) -> dict[str, Any]:
    """A function in the place of the type: attributes of a type would lead out of the sandbox."""
    return dict(*arguments, **values)


class _PlainNamespace(Namespace):
    """Jinja's `namespace()`, which can't be made to hold Python's own underscore attributes."""

    def __init__(*arguments: Any, **values: Any) -> None:
        # Jinja's own calling convention: `self` stays free as a name of the template's.
        instance, *positional = arguments
        attributes: dict[str, Any] = dict(*positional, **values)
        for name in attributes:
            _refuse_underscore(name)
        Namespace.__init__(instance, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_underscore(name)
        super().__setitem__(name, value)


def _refuse_underscore(name: str) -> None:
    if name.startswith("_"):
        raise jinja2.exceptions.SecurityError(f"a namespace can't hold {name!r}")


class _GenerationTag(Extension):
    """`{% generation %} … {% endgeneration %}` marks the model's words for training; nothing here."""

    tags = {"generation"}  # noqa: RUF012 - the base class states it so

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)
