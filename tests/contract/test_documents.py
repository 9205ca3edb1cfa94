"""The committed documents say what the code says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import jsonschema
import pytest

from baton_contracts import documents, errors, examples, permissions, subjects
from baton_contracts.base import MalformedMessage
from baton_contracts.frames import decode_frame, encode_frame
from baton_contracts.registry import CHANNELS

FOLDER = Path(__file__).parents[2] / "contracts"


def test_the_generated_documents_are_fresh() -> None:
    stale = [name for name, text in documents.documents().items() if (FOLDER / name).read_text() != text]
    assert stale == [], "run: python -m baton_contracts.documents contracts"


def test_no_schema_is_left_over() -> None:
    committed = {f"schemas/{path.name}" for path in (FOLDER / "schemas").glob("*.json")}
    assert committed == {name for name in documents.documents() if name.startswith("schemas/")}


@pytest.mark.parametrize("name", sorted(examples.EXAMPLES))
def test_each_example_is_fresh_valid_and_decodes_to_itself(name: str) -> None:
    message = examples.EXAMPLES[name]
    text = (FOLDER / "examples" / f"{name}.json").read_text()
    assert text == examples.encoded(message), "run: python -m baton_contracts.examples contracts/examples"
    schema_name = name.split(".", maxsplit=1)[0]
    schema = json.loads((FOLDER / "schemas" / f"{schema_name}.json").read_text())
    jsonschema.validate(json.loads(text), schema)
    if schema_name == "Frame":
        assert decode_frame(text.encode()) == message
    else:
        assert type(message).decode(text.encode()) == message


def test_every_message_of_every_channel_has_an_example() -> None:
    named = {name.split(".")[0] for name in examples.EXAMPLES}
    wanted = {channel.message_name for channel in CHANNELS}
    wanted |= {channel.reply.__name__ for channel in CHANNELS if channel.reply}
    assert wanted - named == set()


@pytest.mark.parametrize("name", ["Frame.prologue", "Frame.data", "Frame.end", "Frame.error", "Frame.held"])
def test_a_frame_survives_the_wire(name: str) -> None:
    frame = examples.EXAMPLES[name]
    assert decode_frame(encode_frame(frame)) == frame  # type: ignore[arg-type]


def test_a_malformed_message_is_named_without_its_content() -> None:
    with pytest.raises(MalformedMessage) as malformed:
        decode_frame(b'{"kind":"data","secret":"hunter2","seq":"x"}')
    assert "hunter2" not in str(malformed.value)


def test_every_error_code_has_a_status_and_a_type() -> None:
    codes = errors.ErrorCode.__args__  # type: ignore[attr-defined]
    assert {errors.http_status(code) // 100 for code in codes} == {4, 5}
    assert errors.http_status("no_ready_replica") == 503
    assert errors.error_type("rate_limit_exceeded") == "rate_limit_error"


def services_that_may_publish(subject: str) -> set[str]:
    every = get_args(subjects.Service)
    return {service for service in every if subject in permissions.of_service(service).publish}


def test_every_service_may_use_just_its_channels() -> None:
    """An answer comes from those on its way only, and no engine may write the books."""
    assert services_that_may_publish("baton.v1.reply.*.*") == {
        "prompt_builder",
        "input_guardrails",
        "llm_gateway",
        "inference_router",
        "engine_worker",
        "output_guardrails",
    }
    assert services_that_may_publish("baton.v1.cancel.*") == {"edge_api", "llm_gateway", "output_guardrails"}
    assert services_that_may_publish("baton.v1.engine.*.*") == {"inference_router"}
    embedder = permissions.of_service("embedder")
    assert embedder.publish == ("baton.v1.lease.*", "baton.v1.trace.*")
    assert embedder.subscribe == (
        "_INBOX_embedder.>",
        "$SRV.>",
        "baton.v1.cancel.*",
        "baton.v1.embed.*",
        "baton.v1.lease.*",
    )
    engine = permissions.of_service("engine_worker")
    assert [subject for subject in engine.publish if "after" in subject] == ["baton.v1.after.usage.*"]
    assert not any(".reply." in subject or "prompt" in subject for subject in engine.subscribe)
