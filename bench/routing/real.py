"""The same four ways on real replicas: engine workers as processes of their own, over NATS, on this machine.

`ours` goes through the router itself, its question for tokens included; the others choose here from the same
table and index and hand the request straight to the replica. Each run has a cache salt of its own, so that
none finds what another computed.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from baton_common.bus import BusMessage
from baton_common.frame_inbox import FrameInbox
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.frames import Data, End, Error
from baton_contracts.handoffs import Ack, EngineHandoff, EngineWork, RouteHandoff
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Message, Part, Prompt, Sampling
from baton_inference_router.__main__ import wire as wire_router
from baton_inference_router.kv_listener import KvListener
from baton_inference_router.prefix_index import PrefixIndex
from baton_inference_router.prompt_reading import read_prompt
from baton_inference_router.replicas import ReplicaTable
from baton_inference_router.scoring import Asked
from baton_inference_router.settings import Settings as RouterSettings
from bench.routing.policies import POLICIES
from bench.routing.processes import engine_workers, nats_server
from bench.routing.simulation import Outcome

MODEL = "smollm2-135m"
START_SECONDS = 60.0
ANSWER_TOKENS = 16
NOUNS = (
    "time year people way day man thing woman life child world school state family student group country "
    "problem hand part place case week company system program question work government number night point "
    "water room mother area money story fact month lot right study book eye job word business issue"
)
Row = dict[str, object]


@dataclass(frozen=True)
class RealLoad:
    """`rate`: requests a second of all. A group shares a system prompt of about 700 tokens."""

    num_replicas: int = 4
    groups: int = 10
    asked_by_each: int = 6
    num_cold: int = 60
    rate: float = 3.0

    def quick(self) -> RealLoad:
        return replace(self, groups=5, num_cold=12)


@dataclass(frozen=True)
class Question:
    after_seconds: float
    prompt: Prompt


async def measure(load: RealLoad) -> list[Row]:
    rows: list[Row] = []
    traffic = {"shared": shared(load), "cold": cold(load)}
    async with AsyncExitStack() as stack:
        url = stack.enter_context(nats_server())
        stack.enter_context(engine_workers(url, MODEL, load.num_replicas))
        stand = await stack.enter_async_context(_stand(url))
        await stand.until_ready(load.num_replicas)
        await stand.run("warm up", "round robin", traffic["cold"][: 2 * load.num_replicas])
        for name, questions in traffic.items():
            for policy in POLICIES:
                outcome = await stand.run(name, policy, questions)
                rows.append({"replicas": load.num_replicas, "load": name, "policy": policy, **outcome.row()})
    return rows


def shared(load: RealLoad) -> list[Question]:
    chance = random.Random(7)  # noqa: S311  # the same questions for every policy
    systems = [_text(chance, 520) for _ in range(load.groups)]
    order = systems * load.asked_by_each
    chance.shuffle(order)
    return _spread(chance, load.rate, [_prompt(system, _text(chance, 20)) for system in order])


def cold(load: RealLoad) -> list[Question]:
    chance = random.Random(8)  # noqa: S311
    lengths = [min(700, max(30, round(chance.lognormvariate(5.0, 0.8)))) for _ in range(load.num_cold)]
    return _spread(chance, load.rate, [_prompt("", _text(chance, length)) for length in lengths])


def _text(chance: random.Random, num_words: int) -> str:
    return " ".join(chance.choices(NOUNS.split(), k=num_words))


def _prompt(system: str, question: str) -> Prompt:
    asked = Message(role="user", parts=(Part(text=question),))
    told = (Message(role="system", parts=(Part(text=system),)),) if system else ()
    return Prompt(messages=(*told, asked))


def _spread(chance: random.Random, rate: float, prompts: list[Prompt]) -> list[Question]:
    at, questions = 0.0, list[Question]()
    for prompt in prompts:
        at += chance.expovariate(rate)
        questions.append(Question(at, prompt))
    return questions


class Stand:
    """Plays edge, gateway and guard under one name; chooses, asks, listens, takes the time."""

    def __init__(self, node: Node, table: ReplicaTable, index: PrefixIndex, inbox: FrameInbox) -> None:
        self._node = node
        self._table = table
        self._index = index
        self._inbox = inbox

    async def until_ready(self, num_replicas: int) -> None:
        async with asyncio.timeout(START_SECONDS):
            while len(self._table.candidates(MODEL)) < num_replicas:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        await asyncio.sleep(1.5)  # routers have asked every replica for its blocks by then

    async def run(self, load: str, policy: str, questions: list[Question]) -> Outcome:
        outcome, served = Outcome(), Counter[str]()
        salt = f"{load} {policy}"
        began = time.perf_counter()

        async def one(question: Question) -> None:
            await asyncio.sleep(question.after_seconds - (time.perf_counter() - began))
            await self._ask(policy, self._work(question, salt), outcome, served)

        await asyncio.gather(*(one(question) for question in questions))
        outcome.work_of_replicas = [float(served[each.replica]) for each in self._table.candidates(MODEL)]
        return outcome

    def _work(self, question: Question, salt: str) -> EngineWork:
        sampling = Sampling(max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True)
        return EngineWork(model=MODEL, prompt=question.prompt, sampling=sampling, cache_salt=salt)

    async def _ask(self, policy: str, work: EngineWork, outcome: Outcome, served: Counter[str]) -> None:
        request_id, started = new_request_id(), time.perf_counter()
        queue = self._inbox.open(request_id)
        try:
            ack = await (self._routed if policy == "ours" else self._chosen)(request_id, work, policy)
            outcome.choosing_seconds.append(time.perf_counter() - started)
            if ack is None or ack.verdict != "held":
                outcome.refused += 1
                return
            served[ack.instance] += 1
            first: float | None = None
            while True:
                match await queue.get(60):
                    case Data() if first is None:
                        first = time.perf_counter() - started
                        outcome.ttft_seconds.append(first)
                    case End(usage=usage):
                        outcome.prompt_tokens += usage.prompt_tokens
                        outcome.cached_tokens += usage.cached_tokens
                        return
                    case Error(error=error):
                        raise SystemExit(f"a replica failed: {error.message}")
                    case _:
                        pass
        finally:
            queue.close()

    async def _routed(self, request_id: str, work: EngineWork, _policy: str) -> Ack | None:
        me = self._node.instance
        handoff = RouteHandoff(envelope=self._envelope(request_id), work=work, gateway=me, guard=me)
        raw = await self._node.bus.request(subjects.route(request_id), handoff.encode(), timeout=10)
        return Ack.decode(raw)

    async def _chosen(self, request_id: str, work: EngineWork, policy: str) -> Ack | None:
        bus, me = self._node.bus, self._node.instance
        prompt = None
        if policy == "prefix only":
            prompt = await read_prompt(bus, request_id, work, 1.0)
        candidates = self._table.candidates(MODEL)
        cached = prompt.cached_tokens(self._index, candidates) if prompt else {}
        chosen = POLICIES[policy](candidates, prompt.asked if prompt else Asked(), cached)
        if chosen is None:
            return None
        seat = self._table.reserve(chosen.replica)
        if prompt:
            self._index.expect(chosen.replica, prompt.chain)
        handoff = EngineHandoff(
            envelope=self._envelope(request_id),
            work=prompt.work if prompt else work,
            gateway=me,
            guard=me,
            router=me,
        )
        try:
            raw = await bus.request(subjects.engine(chosen.replica, request_id), handoff.encode(), timeout=10)
            ack = Ack.decode(raw)
            (seat.accept if ack.verdict == "held" else seat.refuse)(ack)
        finally:
            seat.release()
        return ack

    def _envelope(self, request_id: str) -> Envelope:
        now = time.time()
        return Envelope(
            request_id=request_id,
            run_id="00000000",
            tenant=Tenant(tenant_id="bench", key_id="bench"),
            edge=self._node.instance,
            conversation_id="bench",
            deadline=now + 120,
            sent_at=now,
        )


@asynccontextmanager
async def _stand(url: str) -> AsyncGenerator[Stand]:
    async with AsyncExitStack() as stack:
        node = await _node(stack, url, "llm_gateway")
        await _keep_records(url)
        index = PrefixIndex(node.clock, 1_000_000)
        listener = KvListener(node, index)
        table = ReplicaTable(node.clock, 5.0, on_lost=listener.forget)
        inbox = FrameInbox(node.bus, subjects.frames_of_gateway(node.instance))

        def on_heartbeat(message: BusMessage) -> None:
            if beat := table.on_message(message):
                listener.on_heartbeat(beat)

        await listener.start()
        await node.bus.subscribe(subjects.REPLICA_ALL, on_heartbeat)
        await inbox.start()
        router = await _node(stack, url, "inference_router")
        await stack.enter_async_context(wire_router(RouterSettings(), router, router.bus))
        await router.become_ready()
        yield Stand(node, table, index, inbox)


async def _keep_records(url: str) -> None:
    """Where a worker stores the row of a request whose gateway has left."""
    bus = await NatsBus.connect(url, name="bench")
    await bus.jetstream.add_stream(name=subjects.STREAM_AFTER, subjects=[subjects.AFTER_ALL])
    await bus.close()


async def _node(stack: AsyncExitStack, url: str, service: subjects.Service) -> Node:
    bus = await NatsBus.connect(url, name=service)
    stack.push_async_callback(bus.close)
    node = Node(bus, service)
    await node.start()
    stack.push_async_callback(node.stop)
    return node
