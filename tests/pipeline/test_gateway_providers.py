"""The gateway in front of other OpenAI-compatible servers: their answers go the way of an engine's, and what
goes wrong there is retried, left alone, answered elsewhere or told, each as it should be."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from baton_common.frame_inbox import AnyFrame, FrameQueue
from baton_contracts.prompt import Message, Part, Prompt, Sampling, Tool
from tests.support.fake_engine import FakeEngine
from tests.support.fake_provider import FakeProvider, Turn, fake_provider
from tests.support.relay_stage import Exchange, Stage
from tests.support.scripted_answer import Script
from tests.support.waiting import eventually

QUICK = "connect_seconds = 2\nfirst_token_seconds = 0.3\nstall_seconds = 0.3\n"


def write_catalog(home: Path, provider: FakeProvider, more: str = "", rest: str = "") -> None:
    (home / "catalog.toml").write_text(
        f'[models."far"]\ncontext_length = 4096\n{more}\n'
        f'[[models."far".targets]]\nname = "first"\nbase_url = "{provider.base_url}"\nmodel = "up"\n{QUICK}\n'
        f"{rest}"
    )


async def staged(stage: Stage, home: Path, **settings: Any) -> None:
    await asyncio.gather(stage.guard(), stage.router(), stage.gateway(home=home, **settings))


async def ask(stage: Stage, *, stream: bool = True, plain: bool = False, **request: Any) -> Exchange:
    handoff = stage.handoff(model="far", **request)
    chat = handoff.chat.model_copy(update={"stream": stream})
    return await stage.ask(handoff.model_copy(update={"chat": chat, "plain": plain}))


async def hello(turn: Turn) -> None:
    await turn.delta(role="assistant", content="")
    await turn.delta(content="Hel")
    await turn.delta(content="lo")
    await turn.done(prompt=7, completion=2)


@pytest.mark.parametrize("plain", [False, True])
async def test_a_streamed_answer(stage: Stage, tmp_path: Path, plain: bool) -> None:
    async with fake_provider(hello) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = await ask(stage, plain=plain, sampling=Sampling(temperature=0.5, max_tokens=5, stop=("X",)))
    assert heard.text == "Hello"
    assert heard.end is not None
    assert (heard.end.finish_reason, heard.end.usage.prompt_tokens, heard.end.usage.completion_tokens) == (
        "stop",
        7,
        2,
    )
    assert [(prologue.model, prologue.replica) for prologue in heard.prologues] == [("far", "first")]
    body = provider.asked[0].body
    assert body == {
        "model": "up",
        "messages": [{"role": "user", "content": "How much is six times seven?"}],
        "temperature": 0.5,
        "max_tokens": 5,
        "stop": ["X"],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.model, row.replica, row.outcome, row.usage.completion_tokens) == (
        "far",
        "first",
        "finished",
        2,
    )


async def test_its_frames_are_read_by_the_guard_and_not_by_the_gateway_that_wrote_them(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[AnyFrame] = []
    put = FrameQueue.put
    monkeypatch.setattr(FrameQueue, "put", lambda queue, frame: (taken.append(frame), put(queue, frame)))
    async with fake_provider(hello) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        assert (await ask(stage)).text == "Hello"
    of_gateway = [type(frame).__name__ for frame in taken if frame.sender.startswith("llm_gateway-")]
    assert [name for name in of_gateway if name != "Data"] == ["Held", "Prologue", "End"]


async def test_a_call_that_its_deadline_ends_is_billed_for_what_was_asked_and_came(
    stage: Stage, tmp_path: Path
) -> None:
    async def halting(turn: Turn) -> None:
        await turn.delta(content="Hel")
        await turn.silence()

    async with fake_provider(halting) as provider:
        write_catalog(tmp_path, provider)
        catalog = tmp_path / "catalog.toml"
        catalog.write_text(catalog.read_text().replace("stall_seconds = 0.3", "stall_seconds = 30"))
        await staged(stage, tmp_path)
        heard = await ask(stage, seconds=1.0)
    assert heard.error is not None
    assert heard.error.code == "deadline_exceeded"
    await eventually(lambda: len(stage.records) == 1)
    row = stage.records[0]
    assert (row.outcome, row.error_code) == ("error", "deadline_exceeded")
    assert (row.usage.prompt_tokens, row.usage.completion_tokens) == (11, 1)  # 28 characters, one message


async def test_a_whole_answer_and_then_the_cache(stage: Stage, tmp_path: Path) -> None:
    async def whole(turn: Turn) -> None:
        await turn.whole("Forty-two.")

    async with fake_provider(whole) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = [await ask(stage, stream=False, sampling=Sampling(temperature=0)) for _ in range(2)]
    assert [each.text for each in heard] == ["Forty-two.", "Forty-two."]
    assert [each.prologues[0].cache for each in heard] == ["none", "exact"]
    assert len(provider.asked) == 1
    assert "stream" not in provider.asked[0].body


async def test_tool_calls_thinking_and_several_answers(stage: Stage, tmp_path: Path) -> None:
    async def calls(turn: Turn) -> None:
        await turn.delta(reasoning_content="Hm.")
        first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
        await turn.delta(tool_calls=[first])
        await turn.delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a"'}}])
        await turn.delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}])
        await turn.delta(tool_calls=[{"index": 1, "id": "c2", "function": {"name": "go", "arguments": "{}"}}])
        await turn.delta(index=1, content="other")
        await turn.delta(index=1, reason="length")
        await turn.done(reason="tool_calls")

    prompt = Prompt(
        messages=(Message(role="user", parts=(Part(text="go"),)),),
        tools=(Tool(name="look", parameters='{"type": "object"}'), Tool(name="go")),
    )
    async with fake_provider(calls) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = await ask(stage, prompt=prompt, sampling=Sampling(n=2))
    assert heard.reasoning == "Hm."
    found = [(call.call_id, call.name, call.arguments, call.is_whole) for call in heard.calls.values()]
    assert found == [("c1", "look", '{"a":1}', True), ("c2", "go", "{}", True)]
    assert heard.end
    assert heard.end.finish_reasons == ("tool_calls", "length")
    assert provider.asked[0].body["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert provider.asked[0].body["n"] == 2


async def test_an_answer_that_ends_without_done_or_closing_line(stage: Stage, tmp_path: Path) -> None:
    async def rough(turn: Turn) -> None:
        await turn.raw(b': hi\r\n\r\ndata: {"choices":[{"index":0,\r\ndata: "delta":{"content":"\xc3')
        await turn.raw(b'\xa9t\xc3\xa9"}}]}\r\n\r\n')
        await turn.raw(b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}')

    async with fake_provider(rough) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = await ask(stage)
    assert (heard.text, heard.end and heard.end.finish_reason) == ("été", "length")


async def test_failures_before_the_first_token_are_retried_and_only_then_told(
    stage: Stage, tmp_path: Path
) -> None:
    async def poor(turn: Turn) -> None:
        if len(provider.asked) < 3:
            await turn.refuse(500, {"message": "boom"})
        else:
            await hello(turn)

    async with fake_provider(poor) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = await ask(stage)
        assert (heard.text, len(provider.asked)) == ("Hello", 3)

        async def bad(turn: Turn) -> None:
            await turn.refuse(500, {"message": f"boom {len(provider.asked)}"})

        provider.script = bad
        failed = await ask(stage)
    assert failed.error
    assert (failed.error.code, failed.error.message) == ("upstream_error", "first answered HTTP 500: boom 4")
    assert len(provider.asked) == 6
    await eventually(lambda: len(stage.records) == 1)  # a server that refused was not called


async def test_the_clients_own_fault_is_told_as_the_provider_says_it_and_not_retried(
    stage: Stage, tmp_path: Path
) -> None:
    async def bad(turn: Turn) -> None:
        await turn.refuse(400, {"message": "top_p is odd", "param": "top_p", "code": None})

    async with fake_provider(bad) as provider:
        write_catalog(tmp_path, provider, 'fallbacks = ["smollm2-135m"]')
        await staged(stage, tmp_path)
        for _ in range(4):
            heard = await ask(stage)
            assert heard.error
            assert (heard.error.code, heard.error.param, heard.error.message) == (
                "invalid_request",
                "top_p",
                "top_p is odd",
            )
    assert len(provider.asked) == 4  # none of them tripped the cooldown


async def test_what_the_target_does_not_take_is_refused_by_name(stage: Stage, tmp_path: Path) -> None:
    async with fake_provider(hello) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = await ask(stage, sampling=Sampling(top_k=5))
        assert heard.error
        assert (heard.error.code, heard.error.param) == ("unsupported_parameter", "top_k")
    assert provider.asked == []


async def test_three_failures_in_a_row_leave_the_target_alone(stage: Stage, tmp_path: Path) -> None:
    async def bad(turn: Turn) -> None:
        await turn.refuse(503)

    async with fake_provider(bad) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path, max_attempts=1)
        codes: list[tuple[str, float | None]] = []
        for _ in range(4):
            heard = await ask(stage)
            assert heard.error
            codes.append((heard.error.code, heard.error.retry_after_seconds))
    assert [code for code, _ in codes] == ["upstream_error"] * 3 + ["no_ready_replica"]
    assert 9 < (codes[3][1] or 0) <= 10
    assert len(provider.asked) == 3


async def test_a_fallback_model_answers_in_its_own_name(stage: Stage, tmp_path: Path) -> None:
    async def bad(turn: Turn) -> None:
        await turn.refuse(401)

    async with fake_provider(bad) as provider:
        write_catalog(tmp_path, provider, 'fallbacks = ["smollm2-135m"]')
        await stage.worker(FakeEngine(Script(words=("from ", "our ", "own"))))
        await staged(stage, tmp_path)
        heard = await ask(stage)
    assert heard.text.strip().endswith("own")
    assert [prologue.model for prologue in heard.prologues] == ["smollm2-135m"]
    await eventually(lambda: len(stage.records) == 1)
    assert stage.records[0].model == "smollm2-135m"


async def test_a_silent_server_is_given_up_and_its_connection_closed(stage: Stage, tmp_path: Path) -> None:
    async def silent(turn: Turn) -> None:
        await turn.words(2)
        await turn.silence()

    async with fake_provider(silent) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        heard = await ask(stage)
        assert heard.text == "0 1 "
        assert heard.error
        assert "broke off after 2 tokens" in heard.error.message
        async with asyncio.timeout(2):
            await provider.asked[0].closed.wait()
    await eventually(lambda: len(stage.records) == 1)
    assert (stage.records[0].outcome, stage.records[0].usage.completion_tokens) == ("error", 2)


async def test_a_call_for_a_client_whose_edge_is_gone_is_ended(stage: Stage, tmp_path: Path) -> None:
    async def slow(turn: Turn) -> None:
        await turn.words(2)
        await turn.silence()

    async with fake_provider(slow) as provider:
        write_catalog(tmp_path, provider)
        await staged(stage, tmp_path)
        handoff = stage.handoff(model="far")
        chat = handoff.chat.model_copy(update={"stream": True})
        request_id = await stage.send(handoff.model_copy(update={"chat": chat}))
        await stage.listen(request_id, until=lambda heard: "1" in heard.text)
        await stage.edge.stop()
        async with asyncio.timeout(2):
            await provider.asked[0].closed.wait()
    await eventually(lambda: len(stage.records) == 1)
    assert (stage.records[0].outcome, len(provider.asked)) == ("cancelled", 1)


async def test_the_provider_gets_its_key_and_nobody_else(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAR_KEY", "sk-secret")
    async with fake_provider(hello) as provider:
        write_catalog(tmp_path, provider, rest='api_key_env = "FAR_KEY"\nheaders = { "x-org" = "core" }\n')
        await staged(stage, tmp_path)
        await ask(stage)
    asked = provider.asked[0]
    assert (asked.headers["authorization"], asked.headers["x-org"]) == ("Bearer sk-secret", "core")
    assert "sk-secret" not in json.dumps(asked.body)
