from __future__ import annotations

import pytest

from baton_common.catalog import load_catalog
from baton_common.errors import RequestFailed
from baton_contracts.prompt import Chunk, Message, Part, Prompt, Tool, ToolCall
from baton_llm_gateway.difficulty import Difficulty, shipped
from baton_llm_gateway.model_choice import ModelChooser

SMALL = "smollm2-135m"
LARGE = "qwen2.5-coder-0.5b"

CALLED = Message(role="assistant", parts=(), tool_calls=(ToolCall(call_id="c", name="f", arguments="{}"),))


def chooser(*ready: str, seen: tuple[str, ...] = (), difficulty: Difficulty | None = None) -> ModelChooser:
    known = set(ready) | set(seen)
    return ModelChooser(
        load_catalog(),
        ready.__contains__,
        known.__contains__,
        long_question_characters=600,
        difficulty=difficulty,
    )


def asks(text: str, *before: Message) -> Prompt:
    return Prompt(messages=(*before, Message(role="user", parts=(Part(text=text),))))


def with_documents(text: str) -> Prompt:
    document = Part(text="A 503 means …", origin="document", chunk_id="c1")
    chunk = Chunk(chunk_id="c1", citation=1, source="errors.md", score=0.9)
    message = Message(role="user", parts=(document, Part(text=text)))
    return Prompt(messages=(message,), chunks=(chunk,))


def test_a_client_that_names_a_model_gets_it_ready_or_not() -> None:
    choice = chooser(LARGE).choose(SMALL, with_documents("Why?"))
    assert (choice.model, choice.rule, choice.other) == (SMALL, "named", None)


def test_a_model_outside_the_catalog_is_known_once_it_was_seen() -> None:
    assert chooser(seen=("my-own",)).choose("my-own", asks("Hi")).model == "my-own"


def test_an_unknown_model_is_a_404_at_the_parameter() -> None:
    with pytest.raises(RequestFailed) as failed:
        chooser(SMALL).choose("gpt-9", asks("Hi"))
    error = failed.value.error
    assert (error.code, error.status, error.param) == ("model_not_found", 404, "model")
    assert "gpt-9" in error.message


def test_the_default_alias_stands_for_the_small_model() -> None:
    choice = chooser(SMALL, LARGE).choose("default", with_documents("Why?"))
    assert (choice.model, choice.rule, choice.other) == (SMALL, "alias", None)


@pytest.mark.parametrize(
    ("prompt", "model", "rule"),
    [
        (asks("What is the capital of France?"), SMALL, "easy"),
        (asks("Which film class is this script from?"), SMALL, "easy"),
        (with_documents("Why is my API returning a 503?"), LARGE, "documents"),
        (asks("What is the weather?").model_copy(update={"tools": (Tool(name="f"),)}), LARGE, "tools"),
        (asks("Thanks!", CALLED), LARGE, "tools"),
        (asks("Tell me more. " * 50), LARGE, "long_question"),
        (asks("Write a Python program that sorts names."), LARGE, "code"),
        (asks("What does ```x = 1``` do?"), LARGE, "code"),
        (asks("def f(x): what is wrong here"), LARGE, "code"),
        (asks("Compare cats with dogs, step by step."), LARGE, "analysis"),
        (asks("Hi", Message(role="user", parts=(Part(text="x" * 25_000),))), LARGE, "long_prompt"),
    ],
)
def test_auto_goes_by_rules(prompt: Prompt, model: str, rule: str) -> None:
    choice = chooser(SMALL, LARGE).choose("auto", prompt)
    assert (choice.model, choice.rule) == (model, rule)
    assert choice.other == (LARGE if model == SMALL else SMALL)


def test_auto_takes_the_other_one_while_its_choice_is_not_ready() -> None:
    hard = chooser(SMALL).choose("auto", with_documents("Why?"))
    easy = chooser(LARGE).choose("auto", asks("Hi"))
    assert (hard.model, hard.rule) == (SMALL, "documents_fallback")
    assert f"{LARGE} has no ready replica" in hard.reason
    assert (easy.model, easy.rule) == (LARGE, "easy_fallback")


def test_auto_keeps_its_choice_when_nothing_is_ready() -> None:
    assert chooser().choose("auto", with_documents("Why?")).model == LARGE


def test_only_what_the_user_wrote_is_judged_as_the_question() -> None:
    pasted = Part(text="def f(): compare everything, step by step", origin="builder")
    prompt = Prompt(messages=(Message(role="user", parts=(pasted, Part(text="Hi"))),))
    assert chooser(SMALL, LARGE).choose("auto", prompt).rule == "easy"


HARD = "Why do central banks raise rates when prices rise even though that makes loans dearer for everybody?"


def test_what_the_rules_leave_open_is_weighed() -> None:
    hard = chooser(SMALL, LARGE, difficulty=shipped()).choose("auto", asks(HARD))
    assert (hard.model, hard.rule, hard.other) == (LARGE, "hard", SMALL)
    assert hard.hard_probability is not None
    assert hard.hard_probability > 0.8
    assert hard.reason.startswith(f"hard with probability {hard.hard_probability:.2f}: ")
    easy = chooser(SMALL, LARGE, difficulty=shipped()).choose("auto", asks("What is the capital of France?"))
    assert (easy.model, easy.rule) == (SMALL, "easy")
    assert easy.hard_probability is not None
    assert easy.hard_probability < 0.2


def test_a_rule_comes_first_and_is_not_weighed() -> None:
    choice = chooser(SMALL, LARGE, difficulty=shipped()).choose("auto", with_documents(HARD))
    assert (choice.rule, choice.hard_probability) == ("documents", None)


def test_a_hard_question_falls_back_like_any_other() -> None:
    choice = chooser(SMALL, difficulty=shipped()).choose("auto", asks(HARD))
    assert (choice.model, choice.rule, choice.other) == (SMALL, "hard_fallback", LARGE)


def test_what_can_not_be_read_is_easy() -> None:
    choice = chooser(SMALL, LARGE, difficulty=shipped()).choose("auto", asks("東京の天気は?"))
    assert (choice.rule, choice.hard_probability) == ("easy", None)
