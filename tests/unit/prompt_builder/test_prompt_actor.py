"""The prompt builder's inbox: what it hands on, and what it does when a neighbour is missing or broken."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest

from baton_common.memory_bus import MemoryBus
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.prompt import Message, Part, ToolCall
from tests.support.prompt_stage import (
    FakeEmbedder,
    PromptStage,
    open_prompt_stage,
    said,
    settings_for,
    sources,
    stored,
)
from tests.support.waiting import eventually

ZEBRA = "# Zebra\n\n## Food\n\nZebras mostly graze on savanna grasses.\n"
DEFAULT = "You are a helpful assistant."


async def _memory() -> MemoryBus:
    return MemoryBus()


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncGenerator[PromptStage, None]:
    async with open_prompt_stage(settings_for(tmp_path, embed_seconds=0.2), _memory) as opened:
        yield opened


@pytest.fixture
async def embedder(stage: PromptStage) -> AsyncGenerator[FakeEmbedder, None]:
    embedder = FakeEmbedder(stage.bus)
    await embedder.start()
    yield embedder
    await embedder.stop()


async def test_a_plain_question_gets_the_default_system_prompt(stage: PromptStage) -> None:
    handoff = await stage.ask("Hello", retrieval="off")
    assert [(m.role, m.text) for m in handoff.prompt.messages] == [("system", DEFAULT), ("user", "Hello")]
    assert handoff.chat.messages == (said("user", "Hello"),)
    assert not handoff.prompt.chunks


async def test_a_raw_prompt_goes_on_as_it_came(stage: PromptStage, embedder: FakeEmbedder) -> None:
    await stage.ingest("zebra.md", ZEBRA)
    handoff = await stage.ask(
        "zebras graze savanna grasses", rendering="raw", token_ids=(7, 8), add_special_tokens=False
    )
    prompt = handoff.prompt
    assert prompt.messages == handoff.chat.messages == (said("user", "zebras graze savanna grasses"),)
    assert (prompt.rendering, prompt.token_ids, prompt.add_special_tokens) == ("raw", (7, 8), False)
    assert not prompt.chunks


async def test_how_the_chat_is_rendered_goes_along(stage: PromptStage) -> None:
    handoff = await stage.ask("Hello", retrieval="off", rendering="unopened")
    assert handoff.prompt.rendering == "unopened"
    assert [message.role for message in handoff.prompt.messages] == ["system", "user"]


async def test_documents_are_found_by_meaning_and_by_words(
    stage: PromptStage, embedder: FakeEmbedder
) -> None:
    assert (await stage.ingest("zebra.md", ZEBRA)).added == 1
    handoff = await stage.ask("zebras graze savanna grasses")
    assert sources(handoff) == ["zebra.md"]
    assert "[1] Zebra > Food:\nZebras mostly graze on savanna grasses.\n\n" in handoff.prompt.messages[1].text
    search = await stage.span(handoff, "search")
    assert (search.attributes["num_dense"], search.attributes["num_sparse"]) == (1, 1)
    assemble = await stage.span(handoff, "assemble")
    (label,) = cast(tuple[str, ...], assemble.attributes["chunks"])
    assert label.startswith("zebra.md > Food (0.")
    assert float(label[-6:-1]) == pytest.approx(handoff.prompt.chunks[0].score, abs=0.001)
    texts = str([span.attributes for span in stage.spans[handoff.envelope.request_id]])
    assert "savanna" not in texts
    assert embedder.texts[-1] == "zebras graze savanna grasses"


async def test_without_an_embedder_the_words_find_it_and_the_trace_says_so(stage: PromptStage) -> None:
    stage.settings.ingest_embed_seconds = 0
    await stage.ingest("zebra.md", ZEBRA)
    handoff = await stage.ask("What do zebras graze on?")
    assert sources(handoff) == ["zebra.md"]
    embed = await stage.span(handoff, "embed")
    assert (embed.status, embed.attributes["embedder"]) == ("error", "missing")
    assert embed.attributes["fallback"] == "words only"
    assert not sources(await stage.ask("What do lions eat?"))


async def test_a_slow_or_failing_embedder_is_not_waited_for(
    stage: PromptStage, embedder: FakeEmbedder
) -> None:
    await stage.ingest("zebra.md", ZEBRA)
    embedder.hold = asyncio.Event()
    handoff = await stage.ask("What do zebras graze on?")
    assert sources(handoff) == ["zebra.md"]
    assert (await stage.span(handoff, "embed")).attributes["embedder"] == "slow"
    embedder.hold.set()
    embedder.error = ErrorBody(code="stop_busy", message="full")
    handoff = await stage.ask("What do zebras graze on?")
    assert sources(handoff) == ["zebra.md"]
    assert (await stage.span(handoff, "embed")).attributes["embedder"] == "stop_busy"


async def test_retrieval_off_asks_nobody_and_on_takes_the_best_there_is(
    stage: PromptStage, embedder: FakeEmbedder
) -> None:
    await stage.ingest("zebra.md", ZEBRA)
    embedder.texts.clear()
    assert not sources(await stage.ask("What do zebras graze on?", retrieval="off"))
    assert not embedder.texts
    assert not sources(await stage.ask("completely unrelated words", retrieval="auto"))
    assert sources(await stage.ask("completely unrelated words", retrieval="on")) == ["zebra.md"]


async def test_a_store_that_can_not_be_opened_costs_the_documents_or_the_request(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    async with open_prompt_stage(settings_for(tmp_path), _memory) as stage:
        handoff = await stage.ask("What do zebras graze on?")
        assert not handoff.prompt.chunks
        search = await stage.span(handoff, "search")
        assert (search.status, search.attributes["fallback"]) == ("error", "no documents")
        error = await stage.refused("What do zebras graze on?", retrieval="on")
        assert (error.code, error.status, error.stop) == ("stop_unresponsive", 503, "prompt_builder")
        failed = (await stage.ingest("zebra.md", ZEBRA)).error
        assert failed is not None
        assert failed.code == "stop_unresponsive"


async def test_a_store_that_opens_later_is_used_from_then_on(tmp_path: Path) -> None:
    blocker = tmp_path / "store"
    blocker.write_text("in the way")
    async with open_prompt_stage(settings_for(tmp_path, ingest_embed_seconds=0), _memory) as stage:
        assert not sources(await stage.ask("What do zebras graze on?"))
        blocker.unlink()
        await eventually((blocker / "documents" / "edge_config.json").exists, seconds=20)
        reply = await stage.ingest("zebra.md", ZEBRA)
        while reply.error:
            reply = await stage.ingest("zebra.md", ZEBRA)
        assert sources(await stage.ask("What do zebras graze on?")) == ["zebra.md"]
    shutil.rmtree(blocker)


async def test_stored_history_goes_between_system_and_question(stage: PromptStage) -> None:
    books = await stage.serve_books(*stored([("Hi", "Hello."), ("And?", ""), ("Who?", "Me.")]))
    handoff = await stage.ask(
        said("system", "Be kind."), "What now?", retrieval="off", continue_conversation=True
    )
    assert [(m.role, m.text) for m in handoff.prompt.messages] == [
        ("system", "Be kind."),
        ("user", "Hi"),
        ("assistant", "Hello."),
        ("user", "Who?"),
        ("assistant", "Me."),
        ("user", "What now?"),
    ]
    assert {part.origin for message in handoff.prompt.messages[1:5] for part in message.parts} == {"history"}
    query = stage.asked_books[0]
    assert (query.kind, query.tenant_id, query.conversation_id) == ("conversation", "acme", "conv-1")
    assert (await stage.span(handoff, "history")).attributes["num_messages"] == 4
    await books.stop()


async def test_stored_tool_calls_and_their_results_are_told_again(stage: PromptStage) -> None:
    call = ToolCall(call_id="c1", name="add", arguments='{"a":1}')
    (first,) = stored([("What is 1 + 1?", "")])
    books = await stage.serve_books(first.model_copy(update={"tool_calls": (call,)}))
    result = Message(role="tool", parts=(Part(text="2", origin="tool"),), tool_call_id="c1")
    handoff = await stage.ask(
        said("system", "S"), result, retrieval="off", continue_conversation=True, tools=[{"name": "add"}]
    )
    assert handoff.prompt.messages == (
        said("system", "S"),
        Message(role="user", parts=(Part(text="What is 1 + 1?", origin="history"),)),
        Message(role="assistant", parts=(), tool_calls=(call,)),
        result,
    )
    assert [tool.name for tool in handoff.prompt.tools] == ["add"]
    await books.stop()


@pytest.mark.parametrize(("mode", "shown"), [("auto", ["f"]), ("required", ["f"]), ("none", [])])
async def test_tools_that_may_not_be_called_are_not_shown(
    stage: PromptStage, mode: str, shown: list[str]
) -> None:
    chosen: dict[str, Any] = {
        "tools": [{"name": "f"}],
        "tool_choice": {"mode": mode},
        "template_variables": '{"a":1}',
    }
    handoff = await stage.ask("Hi", retrieval="off", **chosen)
    assert [tool.name for tool in handoff.prompt.tools] == shown
    assert handoff.prompt.template_variables == '{"a":1}'
    assert [tool.name for tool in handoff.chat.tools] == ["f"]


async def test_tools_and_calls_take_room_like_text(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, context_tokens=1000, answer_tokens=100, characters_per_token=1.0)
    call = ToolCall(call_id="c", name="f", arguments="x" * 299)
    turns = (said("user", "1" * 200), Message(role="assistant", parts=(), tool_calls=(call,)))
    async with open_prompt_stage(settings, _memory) as stage:
        kept = await stage.ask(*turns, "last?", retrieval="off")
        assert len(kept.prompt.messages) == 4
        tools = [{"name": "f", "parameters": "y" * 400}]
        cut = await stage.ask(*turns, "last?", retrieval="off", tools=tools)
        assert [message.role for message in cut.prompt.messages] == ["system", "user"]


async def test_a_conversation_without_its_books_is_503_and_names_them(stage: PromptStage) -> None:
    error = await stage.refused("What now?", continue_conversation=True)
    assert (error.code, error.status, error.stop) == ("no_responder", 503, "after_answer")
    assert error.retry_after_seconds == 1
    broken = ErrorBody(code="stop_failed", message="no database", stop="after_answer")
    stage.settings.books_seconds = 0.05
    silent = await stage.bus.subscribe(subjects.BOOKS_ALL, lambda _message: None)
    slow = await stage.refused("What now?", continue_conversation=True)
    assert (slow.code, slow.stop) == ("stop_unresponsive", "after_answer")
    await silent.unsubscribe()
    books = await stage.serve_books(error=broken)
    assert await stage.refused("What now?", continue_conversation=True) == broken
    await books.stop()


async def test_what_the_client_sends_itself_is_used_as_sent_and_no_books_are_asked(
    stage: PromptStage,
) -> None:
    sent = (said("system", "S"), said("user", "1"), said("assistant", "2"), said("user", "3"))
    handoff = await stage.ask(*sent, retrieval="off")
    assert handoff.prompt.messages == sent
    assert not stage.asked_books


async def test_a_conversation_that_is_too_long_loses_its_oldest_turns(tmp_path: Path) -> None:
    settings = settings_for(tmp_path, context_tokens=1000, answer_tokens=100, characters_per_token=1.0)
    async with open_prompt_stage(settings, _memory) as stage:
        turns = [said(role, f"{n}" * 180) for n in range(1, 4) for role in ("user", "assistant")]
        handoff = await stage.ask(*turns, "last?", retrieval="off")
        texts = [message.text[0] for message in handoff.prompt.messages]
        assert texts == ["Y", "2", "2", "3", "3", "l"]
        assert (await stage.span(handoff, "assemble")).attributes["trimmed_turns"] == 1
        whole = await stage.ask(*turns, "last?", retrieval="off", trim_history=False)
        assert [message.text[0] for message in whole.prompt.messages] == [
            "Y",
            "1",
            "1",
            "2",
            "2",
            "3",
            "3",
            "l",
        ]


async def test_a_prompt_that_does_not_fit_into_a_message_is_413(tmp_path: Path) -> None:
    async with open_prompt_stage(settings_for(tmp_path, max_handoff_bytes=20_000), _memory) as stage:
        error = await stage.refused("é" * 9000, retrieval="off")
        assert (error.code, error.status, error.param) == ("request_too_large", 413, "messages")
        await stage.ask("e" * 9000, retrieval="off")


async def test_very_many_short_messages_do_not_fit_either(tmp_path: Path) -> None:
    async with open_prompt_stage(settings_for(tmp_path, max_handoff_bytes=20_000), _memory) as stage:
        error = await stage.refused(*["e"] * 300, retrieval="off", trim_history=False)
        assert (error.code, error.status, error.param) == ("request_too_large", 413, "messages")
        await stage.ask(*["e"] * 30, retrieval="off", trim_history=False)


async def test_without_guardrails_the_request_ends_with_503_naming_them(stage: PromptStage) -> None:
    await stage.guard.drain(1)
    error = await stage.refused("Hello", retrieval="off")
    assert (error.code, error.stop) == ("no_responder", "input_guardrails")


async def test_questions_that_are_empty_or_have_no_user_message_pass(stage: PromptStage) -> None:
    assert (await stage.ask("")).prompt.messages[-1].text == ""
    handoff = await stage.ask(said("system", "only"), said("assistant", "this"))
    assert [message.role for message in handoff.prompt.messages] == ["system", "assistant"]
