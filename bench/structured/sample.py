"""Asks a model for an example of each schema, and checks the answers with another implementation of the
specification (the `jsonschema` package). The schemas are our own, in the kinds of JSONSchemaBench.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from baton_engine import LLM, EngineRequest, InvalidParameter, SamplingParams, StructuredOutput

SCHEMAS = Path(__file__).with_name("schemas.json")


@dataclass(frozen=True)
class Finding:
    """refused and invalid say why; an answer that ran into max_tokens is neither valid nor invalid."""

    name: str
    text: str = ""
    finished: bool = False
    refused: str = ""
    invalid: str = ""


def schemas() -> dict[str, Any]:
    return json.loads(SCHEMAS.read_text(encoding="utf-8"))


def ask_all(llm: LLM, wanted: dict[str, Any], sampling: SamplingParams) -> list[Finding]:
    """All schemas in one batch, but for those that the engine refuses."""
    findings: dict[str, Finding] = {}
    asked: list[EngineRequest] = []
    for name, schema in wanted.items():
        request = EngineRequest(
            name, messages=_messages(schema), sampling=replace(sampling, structured=_structure(schema))
        )
        try:
            llm.run([replace(request, sampling=replace(request.sampling, max_tokens=1))])
        except InvalidParameter as error:
            findings[name] = Finding(name, refused=error.message)
        else:
            asked.append(request)
    for output in llm.run(asked):
        schema, finished = wanted[output.request_id], output.finish_reason == "stop"
        invalid = fault(output.text, schema) if finished else ""
        findings[output.request_id] = Finding(output.request_id, output.text, finished, invalid=invalid)
    return [findings[name] for name in wanted]


def fault(text: str, schema: Any) -> str:
    """Why `text` is no answer to the schema; empty if it is one."""
    try:
        value: Any = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    validator = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    return "; ".join(error.message for error in validator.iter_errors(value))


def _structure(schema: Any) -> StructuredOutput:
    return StructuredOutput(json_schema=schema, param="response_format")


def _messages(schema: Any) -> list[dict[str, Any]]:
    text = json.dumps(schema, ensure_ascii=False)
    return [{"role": "user", "content": f"Write a short example in JSON that follows this schema:\n{text}"}]
