"""R4: an answer held to a JSON schema whose replica is lost after any of its tokens: valid JSON, once."""

from __future__ import annotations

import json

from baton_engine import SamplingParams, StructuredOutput
from tests.support.engine_driver import add, ask, drain, text, token_ids
from tests.support.tiny_model import tiny_engine

SCHEMA = {
    "type": "object",
    "properties": {"host": {"enum": ["web-1", "web-2"]}, "errors": {"type": "integer", "maximum": 9999}},
    "required": ["host", "errors"],
    "additionalProperties": False,
}
HELD = SamplingParams(
    max_tokens=120, temperature=1.0, seed=11, structured=StructuredOutput(json_schema=SCHEMA)
)


def test_the_two_halves_are_one_document() -> None:
    engine = tiny_engine()
    add(engine, ask("whole", [70, 71], HELD))
    whole = drain(engine)["whole"]
    document = json.loads(text(whole))
    assert set(document) == {"host", "errors"}
    assert document["host"] in ("web-1", "web-2")
    for cut in range(1, len(whole) + 1):
        other = ask("rest", [70, 71], HELD, resume_token_ids=token_ids(whole[:cut]))
        add(engine, other)
        rest = drain(engine)["rest"]
        assert json.loads(text(whole[:cut]) + text(rest)) == document, cut
        assert text(whole[:cut]) + text(rest) == text(whole), cut
        assert rest[-1].finish_reason == "stop"
