"""The output guardrails as a process over a real NATS server, with the rights it really has."""

from __future__ import annotations

import asyncio
from pathlib import Path

from baton_common.bus import BusMessage
from baton_common.frame_inbox import FrameInbox
from baton_common.frame_sender import FrameOutbox
from baton_common.vault import Vault, new_key
from baton_contracts import subjects
from baton_contracts.frames import Cancel, Data, End, Prologue, Usage
from baton_contracts.handoffs import Ack, GuardOutHandoff
from baton_contracts.spans import SpanBatch
from tests.support.conformance_run import run_conformance
from tests.support.relay import make_envelope
from tests.support.restricted_nats import restricted_nats
from tests.support.service_process import running_service

RULES = "output: {deny: {phrases: [secret plan]}}"


async def test_answers_are_restored_and_banned_text_stops_the_engine(tmp_path: Path) -> None:
    key = new_key()
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    with restricted_nats(tmp_path / "nats") as nats:
        environment = nats.environment("output_guardrails") | {
            "BATON_VAULT_KEY": key,
            "BATON_HOME": str(tmp_path),
            "BATON_GUARD_CONFIG": str(rules),
        }
        async with running_service("output_guardrails", environment) as process:
            bus = await nats.connect()
            edge, engine = (
                FrameInbox(bus, subjects.reply_all("edge_api-1")),
                FrameOutbox(bus, "engine_worker-1"),
            )
            await edge.start()
            await engine.start()
            cancels: asyncio.Queue[Cancel] = asyncio.Queue()
            traces: asyncio.Queue[SpanBatch] = asyncio.Queue()

            def on_cancel(message: BusMessage) -> None:
                cancels.put_nowait(Cancel.decode(message.payload))

            def on_trace(message: BusMessage) -> None:
                traces.put_nowait(SpanBatch.decode(message.payload))

            await bus.subscribe(subjects.CANCEL_ALL, on_cancel)
            await bus.subscribe(subjects.TRACE_ALL, on_trace)

            async def answer(*texts: str, reason: str) -> tuple[str, End]:
                envelope = make_envelope(edge="edge_api-1")
                rid = envelope.request_id
                queue = edge.open(rid)
                vault = Vault(key).seal(rid, {"<PERSON_1>": "Mary O'Neil"})
                handoff = GuardOutHandoff(envelope=envelope, gateway="llm_gateway-1", vault=vault)
                ack = Ack.decode(await bus.request(subjects.guard_out(rid), handoff.encode(), timeout=5))
                stream = engine.open(subjects.frames("llm_gateway-1", ack.instance, rid), rid, 1)
                base = {"request_id": rid, "sender": "x", "seq": 0}
                await stream.send(
                    Prologue.model_validate(
                        base
                        | {"model": "m", "replica": "r", "gateway": "llm_gateway-1", "guard": ack.instance}
                    )
                )
                for text in texts:
                    await stream.send(Data.model_validate(base | {"text": text}))
                if reason == "cancelled":
                    assert (await cancels.get()).reason == "content_filter"
                end = base | {"finish_reason": reason, "usage": Usage(prompt_tokens=3, completion_tokens=4)}
                await stream.send(End.model_validate(end))
                received = ""
                while True:
                    frame = await queue.get()
                    if isinstance(frame, Data):
                        received += frame.text
                    if isinstance(frame, End):
                        queue.close()
                        return received, frame

            async with asyncio.timeout(20):
                text, end = await answer("Dear <PER", "SON_1", ">, hi", reason="stop")
                assert (text, end.finish_reason) == ("Dear Mary O'Neil, hi", "stop")
                text, end = await answer("the Sec", "ret\n", "plan is", reason="cancelled")
                assert (text, end.finish_reason, end.usage.completion_tokens) == ("the ", "content_filter", 4)
                names = {span.name for span in (await traces.get()).spans}
            assert {"hop", "filter", "handle"} <= names
            await bus.close()
            status, printed = await run_conformance("output_guardrails", nats)
            assert status == 0, printed
            assert await process.terminate() == 0
