"""Real weights: a small model's answers follow their structures. Long form: `python -m bench.structured`."""

from __future__ import annotations

import json
import re

import pytest

from baton_engine import LLM, SamplingParams, StructuredOutput
from bench.structured.sample import ask_all, schemas
from tests.engine_real.model_folder import require_model

pytestmark = [pytest.mark.real_weights, pytest.mark.timeout(300)]

CHOSEN = (
    "ticket",
    "three integers",
    "product code",
    "appointment",
    "shapes",
    "shared definition",
    "unicode keys",
    "order",
)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(require_model(), device="cpu", num_blocks=512)


def test_answers_to_schemas_are_valid(llm: LLM) -> None:
    wanted = {name: schema for name, schema in schemas().items() if name in CHOSEN}
    findings = ask_all(llm, wanted, SamplingParams(max_tokens=160, temperature=0.8, seed=1))
    assert len(findings) == len(CHOSEN)
    assert [one for one in findings if one.refused or one.invalid] == []
    assert sum(one.finished for one in findings) >= len(CHOSEN) - 1


def test_every_kind_of_structure_in_one_batch(llm: LLM) -> None:
    kinds = [
        StructuredOutput(json_object=True),
        StructuredOutput(regex="[A-Z][a-z]{2,9} [0-9]{4}"),
        StructuredOutput(choice=["blue", "green", "a colour that nobody has seen"]),
        StructuredOutput(grammar='start: sum\nsum: NUMBER ("+" NUMBER)~1..3\nNUMBER: /[1-9][0-9]?/'),
    ]
    sampling = [SamplingParams(max_tokens=200, temperature=0, structured=kind) for kind in kinds]
    answers = [output.text for output in llm.generate(["What is the sky like? "] * 4, sampling)]
    assert answers[0].startswith("{")
    assert "\n" not in re.sub(r'"[^"]*"', "", answers[0])
    assert re.fullmatch("[A-Z][a-z]{2,9} [0-9]{4}", answers[1])
    assert answers[2] in ("blue", "green", "a colour that nobody has seen")
    assert re.fullmatch(r"[1-9][0-9]?(\+[1-9][0-9]?){1,3}", answers[3])


def test_a_control_token_is_no_part_of_a_string(llm: LLM) -> None:
    """The model would end its turn inside the string; only what the schema calls an end is one."""
    structured = StructuredOutput(json_schema={"type": "string", "minLength": 30, "maxLength": 60})
    (output,) = llm.generate(
        "Say yes: ", SamplingParams(max_tokens=120, temperature=0, structured=structured)
    )
    assert output.finish_reason == "stop"
    assert 30 <= len(json.loads(output.text)) <= 60
    assert "<|" not in output.text
