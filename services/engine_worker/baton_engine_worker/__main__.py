"""The engine worker's process: wiring only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from baton_common.actor import Actor
from baton_common.bus import Bus
from baton_common.frame_sender import FrameOutbox
from baton_common.intake import InboxLimits
from baton_common.node import Node
from baton_common.recent_ends import RecentEnds
from baton_common.responder import Responder
from baton_common.service import run_service
from baton_common.settings import load_settings
from baton_contracts import subjects
from baton_contracts.handoffs import EngineHandoff
from baton_contracts.kv_events import KvAsk, KvAskReply
from baton_engine import AsyncEngine, EngineError
from baton_engine_worker.attempt import WorkerParts
from baton_engine_worker.dialect import dialect_of
from baton_engine_worker.engine_face import Engine
from baton_engine_worker.heartbeat import Heartbeat
from baton_engine_worker.kv_publisher import KvPublisher
from baton_engine_worker.lifecycle import FailureWatch, hand_back, leave_when_failed, start_engine
from baton_engine_worker.prompt_tokens import PromptTokens, token_questions
from baton_engine_worker.settings import Settings
from baton_engine_worker.steps import StepBridge
from baton_engine_worker.worker import Worker

SWITCH_SECONDS = 0.0005
MORE_THAN_THE_ENGINE_TAKES = 64
"""The engine itself refuses what is too much, with its queue length: the mailbox must not do it first."""


@asynccontextmanager
async def wire(settings: Settings, engine: Engine, node: Node, bus: Bus) -> AsyncGenerator[None, None]:
    max_running, max_waiting = settings.engine_max_seqs, settings.engine_max_waiting
    kv_events = KvPublisher(node, engine)
    heartbeat = Heartbeat(
        node,
        engine,
        kv_events,
        settings.model,
        max_running=max_running,
        max_waiting=max_waiting,
        max_waiting_tokens=settings.engine_max_waiting_tokens,
    )
    watch = FailureWatch(engine, node.clock, settings.engine_stuck_seconds)
    bridge = StepBridge(asyncio.get_running_loop(), watch.look)
    beating = asyncio.create_task(heartbeat.run())
    outbox = FrameOutbox(bus, node.instance, node.leases.read_batches, node.last_words)
    try:
        try:
            await start_engine(engine, heartbeat, bridge)
        except (EngineError, TimeoutError) as error:
            node.log.error("%s does not start: %s", settings.model, error or "the warm-up took too long")
            raise SystemExit(1) from None
        await outbox.start()
        dialect = dialect_of(engine.tokenizer.chat_template_source, settings.stated_tool_format)
        tokens = PromptTokens(engine, dialect)
        ends = RecentEnds(bus, node.leases, node.clock)
        bound = settings.answer_bound
        worker = Worker(WorkerParts(engine, outbox, bridge, heartbeat, dialect, tokens, ends, bound))
        actor = Actor(
            node,
            subject=subjects.engine_all(node.instance),
            message=EngineHandoff,
            handle=worker.handle,
            stop_number=7,
            limits=InboxLimits(concurrency=max_running + max_waiting + MORE_THAN_THE_ENGINE_TAKES),
            queue="",
            ack_by_handler=True,
        )
        node.add(actor)
        node.add(kv_asks(node, kv_events))
        node.add(token_questions(node, tokens, settings.model))
        node.supervise("telling KV events", kv_events.run)
        watching = asyncio.create_task(leave_when_failed(watch, actor, node))
        yield
        watching.cancel()
        await hand_back(worker, actor)
        ends.close()
    finally:
        beating.cancel()
        await outbox.stop()
        await engine.close()
        await heartbeat.send()


def kv_asks(node: Node, kv_events: KvPublisher) -> Responder[KvAsk, KvAskReply]:
    return Responder(
        node,
        subject=subjects.kv_ask(node.instance),
        query=KvAsk,
        reply=KvAskReply,
        answer=kv_events.answer,
        queue="",
    )


def main() -> None:
    # The step loop's Python holds the interpreter for up to 5 ms by default; a frame must not wait that long.
    sys.setswitchinterval(SWITCH_SECONDS)
    settings = load_settings(Settings)
    try:
        engine = AsyncEngine(settings.engine_config())
    except EngineError as error:
        raise SystemExit(f"engine_worker: {error}") from None
    run_service("engine_worker", settings, lambda node, bus: wire(settings, engine, node, bus))


if __name__ == "__main__":
    main()
