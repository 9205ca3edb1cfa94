"""What must be the same before two phrasings are even compared."""

from __future__ import annotations

from typing import Any

import pytest

from baton_contracts.prompt import (
    ChatRequest,
    Message,
    Part,
    Prompt,
    Sampling,
    StructuredOutput,
    Tool,
    ToolCall,
)
from baton_llm_gateway.semantic_key import LONGEST_QUESTION, Alike, alike

SYSTEM = Message(role="system", parts=(Part(text="Be brief.", origin="builder"),))
ASKED = "How do I reset my password?"
OTHERWISE = "Please tell me how to reset my password"


def question(text: str, *before: Part) -> Message:
    return Message(role="user", parts=(*before, Part(text=text)))


def key(text: str = ASKED, **changes: Any) -> Alike | None:
    prompt = Prompt(messages=(SYSTEM, question(text)))
    values: dict[str, Any] = {"tenant_id": "acme", "model": "m", "prompt": prompt, "policy_version": "1"}
    sampling = changes.pop("sampling", {})
    chat = ChatRequest(
        model="auto", messages=prompt.messages, sampling=Sampling(**({"temperature": 0} | sampling))
    )
    return alike(**(values | {"chat": chat} | changes))


def test_another_phrasing_has_the_same_key_and_its_own_question() -> None:
    one, other = key(), key(OTHERWISE)
    assert one is not None
    assert other is not None
    assert one.key == other.key
    assert (one.question, other.question) == (ASKED, OTHERWISE)


DOCUMENT = Part(text="Reset it in the settings, since version 1.", origin="document", chunk_id="c")
LATER = Part(text="Reset it in the settings, since version 2.", origin="document", chunk_id="c")


@pytest.mark.parametrize(
    "change",
    [
        {"tenant_id": "other"},
        {"model": "m2"},
        {"policy_version": "2"},
        {"sampling": {"seed": 7}},
        {"sampling": {"max_tokens": 9}},
        {"prompt": Prompt(messages=(question(ASKED),))},
        {"prompt": Prompt(messages=(SYSTEM, question("Hi"), question(ASKED)))},
        {"prompt": Prompt(messages=(SYSTEM, question(ASKED, DOCUMENT)))},
        {"prompt": Prompt(messages=(SYSTEM, question(ASKED)), tools=(Tool(name="f"),))},
    ],
)
def test_everything_else_is_in_the_key(change: dict[str, Any]) -> None:
    one, other = key(), key(**change)
    assert one is not None
    assert other is not None
    assert one.key != other.key


def test_a_new_version_of_a_document_is_another_key() -> None:
    before, after = (
        key(prompt=Prompt(messages=(question(ASKED, document),))) for document in (DOCUMENT, LATER)
    )
    assert before is not None
    assert after is not None
    assert before.key != after.key


def test_text_does_not_wander_between_document_and_question() -> None:
    moved = Part(text="A user asks. " + ASKED, origin="document")
    one = key(prompt=Prompt(messages=(question(ASKED, Part(text="A user asks. ", origin="document")),)))
    other = key(prompt=Prompt(messages=(question(ASKED, moved),)))
    assert one is not None
    assert other is not None
    assert one.key != other.key


CALLED = Message(role="assistant", parts=(), tool_calls=(ToolCall(call_id="c", name="f", arguments="{}"),))
RESULT = Message(role="tool", parts=(Part(text="12", origin="tool"),), tool_call_id="c")
JSON = StructuredOutput(kind="json_object", param="response_format")


@pytest.mark.parametrize(
    "change",
    [
        {"sampling": {"structured": JSON}},
        {"sampling": {"n": 2}},
        {"sampling": {"logprobs": 0}},
        {"sampling": {"prompt_logprobs": 1}},
        {"sampling": {"return_token_ids": True}},
        {"prompt": Prompt(messages=(SYSTEM, CALLED, RESULT, question(ASKED)))},
        {"prompt": Prompt(messages=(SYSTEM, question("Hi"), CALLED, RESULT))},
        {"prompt": Prompt(messages=(question(ASKED),), rendering="raw")},
        {"prompt": Prompt(messages=(SYSTEM, question("long " * (LONGEST_QUESTION // 5 + 1))))},
        {"prompt": Prompt(messages=(SYSTEM, Message(role="assistant", parts=(Part(text="Well,"),))))},
    ],
)
def test_some_requests_share_with_nobody(change: dict[str, Any]) -> None:
    assert key(**change) is None
