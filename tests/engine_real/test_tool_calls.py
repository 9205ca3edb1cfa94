"""Real weights: what a small model (qwen2.5-coder-0.5b) writes when it calls tools comes out as calls."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from baton_engine import LLM, EngineRequest, OutputFormat, SamplingParams

FOLDER = Path(os.environ.get("BATON_HOME", "~/.baton")).expanduser() / "models" / "qwen2.5-coder-0.5b"

pytestmark = [
    pytest.mark.real_weights,
    pytest.mark.soak,
    pytest.mark.skipif(
        not (FOLDER / "config.json").is_file(), reason="run `baton models pull qwen2.5-coder-0.5b`"
    ),
]


def function(name: str, description: str, **properties: str) -> dict[str, Any]:
    typed = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": typed, "required": list(typed)}
    about = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": about}


TOOLS = [
    function("get_weather", "The current weather of a city.", city="string"),
    function("add", "Adds two numbers.", a="number", b="number"),
]
HERMES = OutputFormat(tool_calls="hermes", tool_names=frozenset({"get_weather", "add"}))


def test_questions_for_tools_are_answered_by_calls() -> None:
    llm = LLM(FOLDER, num_blocks=256, max_num_seqs=4)
    questions = ("What is the weather in Paris?", "Add 17 and 25 with the tool.")
    outputs = llm.run(
        [
            EngineRequest(
                "",
                messages=[{"role": "user", "content": question}],
                tools=TOOLS,
                sampling=SamplingParams(max_tokens=80, temperature=0),
                output_format=HERMES,
            )
            for question in questions
        ]
    )
    assert [output.finish_reason for output in outputs] == ["tool_calls"] * 2
    [weather], [add] = (output.tool_calls for output in outputs)
    assert (weather.name, json.loads(weather.arguments)) == ("get_weather", {"city": "Paris"})
    assert (add.name, json.loads(add.arguments)) == ("add", {"a": 17, "b": 25})
