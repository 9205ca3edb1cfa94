"""What each stop of the relay must do with a good request, its neighbours played by the suite."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from baton_contracts import (
    examples,
    frames,
    handoffs,
    heartbeats,
    kv_events,
    prompt,
    records,
    subjects,
    tokens,
)
from baton_contracts.conformance.probe import Probe, expect
from baton_contracts.example_request import USAGE
from baton_contracts.identifiers import new_request_id, subject_token

_QUESTION = "What is two plus two?"
_CHAT = prompt.ChatRequest(
    model="conformance",
    messages=(prompt.Message(role="user", parts=(prompt.Part(text=_QUESTION),)),),
    sampling=prompt.Sampling(max_tokens=8, temperature=0),
    retrieval="off",
)
_THINKING = "I add."
_CALL = frames.ToolCallPiece(
    index=0, call_id="call_1", name="add", arguments='{"a": 2, "b": 2}', is_whole=True
)
_PROMPT = prompt.Prompt(messages=_CHAT.messages)
_TOOLS = (prompt.Tool(name="add", description="Adds two numbers."),)


async def prompt_builder(probe: Probe) -> None:
    """A handoff on prompt.RID is held, and the built prompt goes to guard.in.RID, the question last."""
    envelope = probe.envelope()
    rid = envelope.request_id
    chat = _CHAT.model_copy(update={"tools": _TOOLS})
    handoff = handoffs.PromptHandoff(envelope=envelope, chat=chat)
    async with probe.listening(subjects.guard_in(rid), probe.held) as ear:
        ack = await probe.ask(subjects.prompt(rid), handoff.encode(), handoffs.Ack)
        expect(ack.verdict == "held", f"the handoff was answered {ack.verdict!r}: {ack.error}")
        built = handoffs.GuardInHandoff.decode((await ear.next("the built prompt")).data)
    expect(built.envelope.request_id == rid, "the request id changed")
    expect(built.prompt.messages[-1].text == _QUESTION, "the question is not the last message")
    expect(built.prompt.tools == _TOOLS, "the prompt's tools are not those of the request")


async def input_guardrails(probe: Probe) -> None:
    """A harmless prompt goes on unchanged; an injection is refused; an e-mail address is masked."""
    envelope = probe.envelope()
    rid = envelope.request_id
    asked = _PROMPT.model_copy(update={"tools": _TOOLS})
    handoff = handoffs.GuardInHandoff(envelope=envelope, chat=_CHAT, prompt=asked)
    async with probe.listening(subjects.gateway(rid), probe.held) as ear:
        ack = await probe.ask(subjects.guard_in(rid), handoff.encode(), handoffs.Ack)
        expect(ack.verdict == "held", f"the handoff was answered {ack.verdict!r}: {ack.error}")
        passed = handoffs.GatewayHandoff.decode((await ear.next("the checked prompt")).data)
    expect(passed.prompt == asked, "a harmless prompt was changed")
    await _masks_an_address(probe)


async def _masks_an_address(probe: Probe) -> None:
    envelope = probe.envelope()
    rid = envelope.request_id
    text = "Write to maria.keller@gmail.com please."
    message = prompt.Message(role="user", parts=(prompt.Part(text=text),))
    chat = _CHAT.model_copy(update={"messages": (message,)})
    handoff = handoffs.GuardInHandoff(envelope=envelope, chat=chat, prompt=prompt.Prompt(messages=(message,)))
    async with probe.listening(subjects.gateway(rid), probe.held) as ear:
        await probe.ask(subjects.guard_in(rid), handoff.encode(), handoffs.Ack)
        passed = handoffs.GatewayHandoff.decode((await ear.next("the masked prompt")).data)
    expect("maria.keller" not in passed.encode().decode(), "the e-mail address went on unmasked")
    expect(passed.vault is not None, "something was masked, but there is no vault to restore it from")


async def output_guardrails(probe: Probe) -> None:
    """Frames sent to the inbox named in the ack come out on reply.EDGE.RID, numbered, all parts unchanged."""
    envelope = probe.envelope()
    rid = envelope.request_id
    handoff = handoffs.GuardOutHandoff(envelope=envelope, gateway=probe.instance)
    async with probe.listening(subjects.reply(probe.instance, rid)) as ear:
        ack = await probe.ask(subjects.guard_out(rid), handoff.encode(), handoffs.Ack)
        expect(ack.verdict == "held", f"the handoff was answered {ack.verdict!r}: {ack.error}")
        await _play_engine(probe, subjects.frames(probe.instance, ack.instance, rid), rid, ack.instance)
        received = await ear.frames_until_end()
    data = [frame for frame in received if isinstance(frame, frames.Data)]
    text = "".join(frame.text for frame in data)
    expect(text == "two plus two is four", f"the text that came out is {text!r}")
    thinking = "".join(frame.reasoning or "" for frame in data)
    expect(thinking == _THINKING, f"the thinking that came out is {thinking!r}")
    pieces = [piece for frame in data for piece in frame.tool_calls or ()]
    arguments = "".join(piece.arguments for piece in pieces)
    expect([piece.name for piece in pieces if piece.name] == [_CALL.name], "the call's name did not come out")
    expect(arguments == _CALL.arguments, f"the call's arguments came out as {arguments!r}")
    numbers = [frame.seq for frame in received if frame.seq >= 0]
    expect(numbers == list(range(len(numbers))), f"the frames are numbered {numbers}")
    expect(isinstance(received[-1], frames.End), f"the last frame is {received[-1].kind}")


async def _play_engine(probe: Probe, subject: str, rid: str, guard: str) -> None:
    sender: dict[str, Any] = {"request_id": rid, "sender": probe.instance}
    script: list[frames.Prologue | frames.Data | frames.End] = [
        frames.Prologue(
            **sender, seq=0, model="m", replica=probe.instance, gateway=probe.instance, guard=guard
        ),
        frames.Data(**sender, seq=1, reasoning=_THINKING, text="two plus "),
        frames.Data(**sender, seq=2, text="two is four", tool_calls=(_CALL,)),
        frames.End(**sender, seq=3, finish_reason="stop", usage=USAGE),
    ]
    for frame in script:
        await probe.client.publish(subject, frames.encode_frame(frame))


async def inference_router(probe: Probe) -> None:
    """A heartbeat makes a replica known; a request is offered to it; no replica means a 503 with a reason."""
    model = f"conformance-{new_request_id()[:8]}"
    work = handoffs.EngineWork(model=model, prompt=_PROMPT)
    ack = await _route(probe, work)
    expect(ack.verdict == "refused", "a model without replicas was not refused")
    expect(ack.error is not None and ack.error.code == "no_ready_replica", f"the reason is {ack.error}")
    async with probe.listening(subjects.engine_all(probe.instance), probe.held) as ear:
        beat = examples.EXAMPLES["ReplicaHeartbeat"].model_copy(
            update={"replica": probe.instance, "model": model, "sent_at": time.time()}
        )
        await probe.client.publish(subjects.replica(subject_token(model), probe.instance), beat.encode())
        await probe.client.flush()
        ack = await _route(probe, work)
        expect(ack.verdict == "held", f"with a ready replica the answer is {ack.verdict!r}: {ack.error}")
        expect(ack.instance == probe.instance, f"the ack names {ack.instance}, not the replica")
        handoffs.EngineHandoff.decode((await ear.next("the request at the replica")).data)


async def _route(probe: Probe, work: handoffs.EngineWork) -> handoffs.Ack:
    envelope = probe.envelope()
    handoff = handoffs.RouteHandoff(
        envelope=envelope, work=work, gateway=probe.instance, guard=probe.instance
    )
    return await probe.ask(subjects.route(envelope.request_id), handoff.encode(), handoffs.Ack)


async def engine_worker(probe: Probe) -> None:
    """A replica announces itself, answers with numbered frames, counts a prompt's tokens as it bills
    them, tells its KV blocks if it says that it does, and confirms a cancel with freed blocks."""
    async with probe.listening(subjects.REPLICA_ALL) as ear:
        message = await ear.next_where(
            "a ready replica", lambda heard: heartbeats.ReplicaHeartbeat.decode(heard.data).state == "ready"
        )
    beat = heartbeats.ReplicaHeartbeat.decode(message.data)
    async with probe.beating():
        await _engine_answers(probe, beat)
        await _engine_counts_tokens(probe, beat)
        if beat.kv_epoch:
            await _engine_tells_its_blocks(probe, beat)
        await _engine_cancels(probe, beat)


def _engine_handoff(probe: Probe, model: str, max_tokens: int) -> handoffs.EngineHandoff:
    sampling = prompt.Sampling(max_tokens=max_tokens, temperature=0, ignore_eos=True)
    return handoffs.EngineHandoff(
        envelope=probe.envelope(),
        work=handoffs.EngineWork(model=model, prompt=_PROMPT, sampling=sampling),
        gateway=probe.instance,
        guard=probe.instance,
        router=probe.instance,
    )


async def _engine_counts_tokens(probe: Probe, beat: heartbeats.ReplicaHeartbeat) -> None:
    query = tokens.TokensQuery(model=beat.model, prompt=_PROMPT, want="hashes")
    subject = subjects.tokens(subject_token(beat.model), new_request_id())
    reply = await probe.ask(subject, query.encode(), tokens.TokensReply)
    expect(reply.error is None, f"the question for a prompt's tokens was answered {reply.error}")
    expect(reply.num_tokens == len(reply.token_ids) > 0, f"{reply.num_tokens} tokens: {reply.token_ids}")
    spared = (reply.num_tokens - 1) // reply.block_size
    expect(len(reply.block_hashes) == spared, f"{len(reply.block_hashes)} block hashes, not {spared}")
    told = {"prompt_token_ids": reply.token_ids, "prompt_tokenizer": reply.tokenizer}
    await _engine_answers(probe, beat, told)


async def _engine_answers(
    probe: Probe, beat: heartbeats.ReplicaHeartbeat, told: dict[str, Any] | None = None
) -> None:
    """`told`: fields of the work beside the prompt."""
    handoff = _engine_handoff(probe, beat.model, max_tokens=8)
    if told:
        handoff = handoff.model_copy(update={"work": handoff.work.model_copy(update=told)})
    rid = handoff.envelope.request_id
    async with probe.listening(subjects.frames(probe.instance, probe.instance, rid)) as ear:
        ack = await probe.ask(subjects.engine(beat.replica, rid), handoff.encode(), handoffs.Ack)
        expect(ack.verdict == "held", f"the handoff was answered {ack.verdict!r}: {ack.error}")
        received = await ear.frames_until_end()
    expect(isinstance(received[0], frames.Prologue), f"the first frame is {received[0].kind}")
    last = received[-1]
    expect(isinstance(last, frames.End), f"the last frame is {last.kind}")
    if isinstance(last, frames.End):
        usage = last.usage
        if told:
            count = len(told["prompt_token_ids"])
            expect(usage.prompt_tokens == count, f"{usage.prompt_tokens} prompt tokens billed, {count} told")
        expect(usage.completion_tokens == 8, f"asked for 8 tokens, the usage says {usage.completion_tokens}")
        expect(last.finish_reason == "length", f"finish reason {last.finish_reason}, not length")
        expect(last.blocks_freed > 0, "no KV blocks were freed at the end")


async def _engine_tells_its_blocks(probe: Probe, beat: heartbeats.ReplicaHeartbeat) -> None:
    async with probe.listening(subjects.kv(beat.replica)) as ear:
        ask = kv_events.KvAsk(asker=probe.instance).encode()
        reply = await probe.ask(subjects.kv_ask(beat.replica), ask, kv_events.KvAskReply)
        expect(reply.error is None, f"the ask for all KV blocks was answered {reply.error}")
        heard = await ear.next_where(
            "all KV blocks, told again",
            lambda heard: kv_events.KvEvents.decode(heard.data).changes[0].kind == "cleared",
        )
    told = kv_events.KvEvents.decode(heard.data)
    expect(told.epoch == beat.kv_epoch, f"the epoch is {told.epoch}, the heartbeat says {beat.kv_epoch}")
    expect(told.seq >= reply.next_seq, f"told again as number {told.seq}, announced from {reply.next_seq} on")


async def _engine_cancels(probe: Probe, beat: heartbeats.ReplicaHeartbeat) -> None:
    handoff = _engine_handoff(probe, beat.model, max_tokens=2000)
    rid = handoff.envelope.request_id
    async with probe.listening(subjects.frames(probe.instance, probe.instance, rid)) as ear:
        await probe.ask(subjects.engine(beat.replica, rid), handoff.encode(), handoffs.Ack)
        await ear.next_where("a first token", lambda heard: b'"kind":"data"' in heard.data)
        cancel = frames.Cancel(request_id=rid, reason="operator")
        ack = await probe.ask(subjects.cancel(rid), cancel.encode(), frames.CancelAck)
        expect(bool(ack.blocks_freed), f"the cancel's ack says {ack.blocks_freed} freed blocks")
        end = await ear.next_where("the end frame", lambda heard: b'"kind":"end"' in heard.data)
    expect(b'"cancelled"' in end.data, "the end frame does not say cancelled")


async def llm_gateway(probe: Probe) -> None:
    """Opens the filter, asks for a route, listens in on the frames, and writes one usage record.

    The suite plays the engine. Filter and router do their own work if they run, else the suite plays them.
    """
    model = f"conformance-{new_request_id()[:8]}"
    envelope = probe.envelope()
    rid = envelope.request_id
    chat = _CHAT.model_copy(update={"model": model, "use_cache": False})
    handoff = handoffs.GatewayHandoff(envelope=envelope, chat=chat, prompt=_PROMPT)
    async with (
        probe.in_place_of("output_guardrails", subjects.guard_out(rid)) as filters,
        probe.in_place_of("inference_router", subjects.route(rid)) as routes,
        probe.listening(subjects.engine_all(probe.instance), probe.held) as engine,
        probe.listening(subjects.after("usage", rid)) as rows,
        probe.beating(),
        _serving(probe, model),
    ):
        ack = await probe.ask(subjects.gateway(rid), handoff.encode(), handoffs.Ack)
        expect(ack.verdict == "held", f"the handoff was answered {ack.verdict!r}: {ack.error}")
        await filters.ear.next("the opening of the filter")
        route = handoffs.RouteHandoff.decode((await routes.ear.next("a route request")).data)
        if filters.played:
            expect(route.guard == probe.instance, f"the route names {route.guard}, not the filter that acked")
        if not routes.played:
            await engine.next("the request at the replica")
        await _play_engine(probe, subjects.frames(route.gateway, route.guard, rid), rid, route.guard)
        row = records.UsageRecord.decode((await rows.next("the usage record")).data)
    expect(row.replica == probe.instance, f"the usage record names {row.replica}, not the replica")
    expect(row.usage == USAGE, f"the usage record says {row.usage}, the engine said {USAGE}")
    expect(row.outcome == "finished", f"the outcome is {row.outcome}, not finished")


@asynccontextmanager
async def _serving(probe: Probe, model: str) -> AsyncGenerator[None]:
    """The suite is a replica of `model`, for gateways and routers; gone at the end."""
    beat = heartbeats.ReplicaHeartbeat(
        replica=probe.instance, model=model, state="ready", sent_at=time.time(), context_length=8192
    )
    subject = subjects.replica(subject_token(model), probe.instance)
    async with probe.repeating(subject, beat.encode(), heartbeats.REPLICA_INTERVAL_SECONDS):
        yield
    await probe.client.publish(subject, beat.model_copy(update={"state": "gone"}).encode())
