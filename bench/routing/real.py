"""The same four ways on real replicas: engine workers as processes of their own, over NATS, on this machine.

All go through the router; what differs is how it ranks, and whether it asks for a prompt's tokens (prefix
only and ours do). The four take turns, several rounds of it, each begun by another one, and a question's time
is its median over the rounds: what else this machine does at some moment is nobody's merit. Each run has a
cache salt of its own, so that none finds what another computed.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from statistics import fmean, median

from baton_common.bus import BusMessage
from baton_common.frame_inbox import FrameInbox
from baton_common.nats_bus import NatsBus
from baton_common.node import Node
from baton_contracts import subjects
from baton_contracts.envelope import Envelope, Tenant
from baton_contracts.frames import Data, End, Error
from baton_contracts.handoffs import Ack, EngineWork, RouteHandoff
from baton_contracts.heartbeats import ReplicaHeartbeat
from baton_contracts.identifiers import new_request_id
from baton_contracts.prompt import Message, Part, Prompt, Sampling
from baton_inference_router.__main__ import wire as wire_router
from baton_inference_router.actor import Rank
from baton_inference_router.scoring import Asked, Candidate, Choice, Gate
from baton_inference_router.settings import Settings as RouterSettings
from bench.routing.policies import ASKING, POLICIES, Pick
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
    rounds: int = 3

    def quick(self) -> RealLoad:
        return replace(self, groups=5, num_cold=12, rounds=1)


@dataclass(frozen=True)
class Question:
    after_seconds: float
    prompt: Prompt


async def measure(load: RealLoad, names: Sequence[str] = ("shared", "cold")) -> list[Row]:
    traffic = {"shared": shared(load), "cold": cold(load)}
    runs = {(name, policy): list[Outcome]() for name in names for policy in POLICIES}
    async with AsyncExitStack() as stack:
        url = stack.enter_context(nats_server())
        stack.enter_context(engine_workers(url, MODEL, load.num_replicas))
        stand = await stack.enter_async_context(_stand(url))
        await stand.until_ready(load.num_replicas)
        await stand.run("warm up", "round robin", traffic["cold"][: 2 * load.num_replicas])
        for number in range(load.rounds):
            for name, policy in _turns(list(runs), number):
                salt = f"{name} {policy} {number}"
                runs[name, policy].append(await stand.run(salt, policy, traffic[name]))
    return [
        {"replicas": load.num_replicas, "load": name, "policy": policy, **over_rounds(outcomes).row()}
        for (name, policy), outcomes in runs.items()
    ]


def _turns(runs: list[tuple[str, str]], number: int) -> list[tuple[str, str]]:
    """Each round begins with another one: no run is always first, and none comes twice in a row."""
    first = number % len(runs)
    return runs[first:] + runs[:first]


def over_rounds(outcomes: Sequence[Outcome]) -> Outcome:
    """Of each question its median time; all else added up."""
    together = Outcome()
    times = zip(*(outcome.ttft_seconds for outcome in outcomes), strict=True)
    answered = [[each for each in of_one if not math.isnan(each)] for of_one in times]
    together.ttft_seconds = [median(of_one) for of_one in answered if of_one]
    for outcome in outcomes:
        together.prompt_tokens += outcome.prompt_tokens
        together.cached_tokens += outcome.cached_tokens
        together.refused += outcome.refused
        together.choosing_seconds += outcome.choosing_seconds
    works = zip(*(sorted(outcome.work_of_replicas) for outcome in outcomes), strict=True)
    together.work_of_replicas = [fmean(of_one) for of_one in works]
    return together


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
    """Plays edge, gateway and guard under one name; asks the router, listens, takes the time."""

    def __init__(self, url: str, node: Node, inbox: FrameInbox) -> None:
        self._url = url
        self._node = node
        self._inbox = inbox
        self._ready = set[str]()

    def on_heartbeat(self, message: BusMessage) -> None:
        beat = ReplicaHeartbeat.decode(message.payload)
        if beat.state == "ready":
            self._ready.add(beat.replica)

    async def until_ready(self, num_replicas: int) -> None:
        async with asyncio.timeout(START_SECONDS):
            while len(self._ready) < num_replicas:  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def run(self, salt: str, policy: str, questions: list[Question]) -> Outcome:
        """Times stand in the order of the questions; NaN: refused."""
        outcome, served = Outcome(), Counter[str]()
        outcome.ttft_seconds = [math.nan] * len(questions)
        async with _router(self._url, policy):
            await asyncio.sleep(1.5)  # it has asked every replica for its blocks by then
            began = time.perf_counter()

            async def one(number: int, question: Question) -> None:
                await asyncio.sleep(question.after_seconds - (time.perf_counter() - began))
                outcome.ttft_seconds[number] = await self._ask(_work(question, salt), outcome, served)

            await asyncio.gather(*(one(*numbered) for numbered in enumerate(questions)))
        outcome.work_of_replicas = [float(served[replica]) for replica in self._ready]
        return outcome

    async def _ask(self, work: EngineWork, outcome: Outcome, served: Counter[str]) -> float:
        request_id, started = new_request_id(), time.perf_counter()
        queue = self._inbox.open(request_id)
        try:
            ack = await self._routed(request_id, work)
            outcome.choosing_seconds.append(time.perf_counter() - started)
            if ack.verdict != "held":
                outcome.refused += 1
                return math.nan
            served[ack.instance] += 1
            first = math.nan
            while True:
                match await queue.get(60):
                    case Data() if math.isnan(first):
                        first = time.perf_counter() - started
                    case End(usage=usage):
                        outcome.prompt_tokens += usage.prompt_tokens
                        outcome.cached_tokens += usage.cached_tokens
                        return first
                    case Error(error=error):
                        raise SystemExit(f"a replica failed: {error.message}")
                    case _:
                        pass
        finally:
            queue.close()

    async def _routed(self, request_id: str, work: EngineWork) -> Ack:
        me = self._node.instance
        handoff = RouteHandoff(envelope=self._envelope(request_id), work=work, gateway=me, guard=me)
        raw = await self._node.bus.request(subjects.route(request_id), handoff.encode(), timeout=10)
        return Ack.decode(raw)

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


def _work(question: Question, salt: str) -> EngineWork:
    sampling = Sampling(max_tokens=ANSWER_TOKENS, temperature=0, ignore_eos=True)
    return EngineWork(model=MODEL, prompt=question.prompt, sampling=sampling, cache_salt=salt)


@asynccontextmanager
async def _stand(url: str) -> AsyncGenerator[Stand]:
    async with AsyncExitStack() as stack:
        node = await _node(stack, url, "llm_gateway")
        await _keep_records(url)
        inbox = FrameInbox(node.bus, subjects.frames_of_gateway(node.instance))
        stand = Stand(url, node, inbox)
        await node.bus.subscribe(subjects.REPLICA_ALL, stand.on_heartbeat)
        await inbox.start()
        yield stand


@asynccontextmanager
async def _router(url: str, policy: str) -> AsyncGenerator[None]:
    async with AsyncExitStack() as stack:
        node = await _node(stack, url, "inference_router")
        settings = RouterSettings(router_prefix_aware=policy in ASKING)
        rank = {} if policy == "ours" else {"rank": _one_of(POLICIES[policy])}
        await stack.enter_async_context(wire_router(settings, node, node.bus, **rank))
        await node.become_ready()
        yield


def _one_of(pick: Pick) -> Rank:
    """As the router wants it: an order, of one."""

    def rank(
        candidates: list[Candidate], asked: Asked, cached: Mapping[str, int], _gate: Gate, _most: int
    ) -> list[Choice]:
        chosen = pick(candidates, asked, cached)
        return [Choice(chosen, 0.0, cached.get(chosen.replica, 0))] if chosen else []

    return rank


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
