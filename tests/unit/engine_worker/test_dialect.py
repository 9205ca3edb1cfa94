"""What a chat template tells of its model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton_engine_worker.dialect import Dialect, dialect_of

QWEN = "{%- if tools %}…{{ tool | tojson }}…<tool_call>{'name': <function-name>…}</tool_call>{%- endif %}"
LLAMA = """{%- if tools is not none %}{{ 'Respond as {"name": function name, "parameters": …}' }}"""
LLAMA_4 = "{%- if tools %}[func_name1(params_name1=params_value1, …), func_name2(params)]{%- endif %}"
QWEN_CODER = "{%- if tools %}<tool_call>\\n<function=example_function_name>{%- endif %}"
MISTRAL = "{%- if tools %}[AVAILABLE_TOOLS]…[TOOL_CALLS]{%- endif %}"
SMOLLM = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
THINKER = QWEN + "{%- if enable_thinking is false %}<think>\\n\\n</think>{%- endif %}"


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (QWEN, Dialect("hermes", True)),
        (LLAMA, Dialect("llama3_json", True)),
        (LLAMA_4, Dialect("pythonic", True)),
        (QWEN_CODER, Dialect("hermes", False)),
        (MISTRAL, Dialect("hermes", False)),
        (SMOLLM, Dialect("hermes", False)),
        (THINKER, Dialect("hermes", True, thinks=True, takes_effort=True)),
        ("", Dialect("hermes", False)),
    ],
    ids=["qwen", "llama", "llama 4", "qwen coder", "mistral", "smollm", "thinker", "none"],
)
def test_the_template_tells(template: str, expected: Dialect) -> None:
    assert dialect_of(template) == expected


def test_what_was_stated_comes_before_what_the_template_tells() -> None:
    assert dialect_of(LLAMA, "pythonic").tool_format == "pythonic"
    assert dialect_of(MISTRAL, "llama3_json") == Dialect("llama3_json", True)
    assert dialect_of(SMOLLM, "llama3_json") == Dialect("llama3_json", False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("qwen2.5-coder-0.5b", Dialect("hermes", True)), ("smollm2-135m", Dialect("hermes", False))],
)
def test_the_default_models(name: str, expected: Dialect) -> None:
    config = Path.home() / ".baton" / "models" / name / "tokenizer_config.json"
    if not config.exists():
        pytest.skip(f"{name} is not here")
    assert dialect_of(json.loads(config.read_text())["chat_template"]) == expected
