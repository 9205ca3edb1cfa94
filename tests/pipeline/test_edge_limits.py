"""Limits at the edge beside cases A10 to A15: models, aliases, broken answers, a store that is away, and
requests that no limit concerns."""

from __future__ import annotations

import asyncio

import pytest

from baton_common.bus import BusMessage
from baton_common.catalog import load_catalog
from baton_common.errors import BusError
from baton_common.money import parse_dollars
from baton_contracts import subjects
from baton_contracts.errors import ErrorBody
from baton_contracts.frames import Usage
from baton_contracts.identifiers import subject_token
from baton_contracts.limits import Budget, LimitRule, model_party, team_party
from baton_contracts.tokens import TokensQuery, TokensReply
from baton_edge_api.answer_so_far import AnswerSoFar
from baton_edge_api.bucket import NatsBucket
from baton_edge_api.limits import grant as grant_module
from baton_edge_api.limits import lane as lane_module
from tests.support.edge_process import QUESTION, Turn
from tests.support.limited_edges import CHAT, Held, limited_edges, put_rule
from tests.support.relay import eventually
from tests.support.scripted_embedder import MODEL as EMBEDDING_MODEL
from tests.support.scripted_embedder import scripted_embedder

MODEL = "smollm2-135m"


async def test_the_prompt_is_counted_by_the_models_own_tokenizer(nats_url: str) -> None:
    async with limited_edges(nats_url, LimitRule(tokens_per_minute=1000)) as limited:
        asked: list[TokensQuery] = []

        def answer(message: BusMessage) -> None:
            asked.append(TokensQuery.decode(message.payload))
            reply = TokensReply(num_tokens=77).encode()
            tasks.append(asyncio.ensure_future(limited.bus.publish(message.reply, reply)))

        tasks: list[asyncio.Future[None]] = []
        await limited.bus.subscribe(f"{subjects.ROOT}.tokens.{subject_token(MODEL)}.*", answer)
        response = await limited.first.ask(model="auto", max_tokens=100)
        assert response.headers["x-ratelimit-remaining-tokens"] == str(1000 - 77 - 100)
        assert [(query.model, query.want) for query in asked] == [(MODEL, "count")]
        assert asked[0].prompt.messages[0].text == "Hello?"
        await asyncio.gather(*tasks)


async def test_a_model_is_limited_for_all_and_an_alias_counts_for_the_one_that_answered(
    nats_url: str,
) -> None:
    party = model_party("qwen2.5-coder-0.5b")
    rules = {party: LimitRule(requests_per_minute=2)}
    async with limited_edges(nats_url, LimitRule(), rules=rules) as limited:
        for _ in range(5):  # the small model answers
            assert (await limited.first.ask(model="auto")).status_code == 200
        assert (await limited.use(party)).requests == 0
        other = await limited.first.ask(model=MODEL)
        assert "x-ratelimit-limit-requests" not in other.headers
    async with limited_edges(nats_url, LimitRule(), _large, rules=rules) as limited:
        for _ in range(2):
            assert (await limited.first.ask(model="auto")).status_code == 200
        refused = await limited.first.ask(model="auto")
        assert refused.status_code == 429
        assert refused.json()["error"]["message"].startswith("This model may have 2 requests a minute")


async def _large(turn: Turn) -> None:
    await turn.prologue(model="qwen2.5-coder-0.5b")
    await turn.data("Hi.")
    await turn.end()


async def test_an_answer_that_breaks_off_is_charged_with_what_came(nats_url: str) -> None:
    async def breaks_off(turn: Turn) -> None:
        await turn.prologue()
        for _ in range(40):
            await turn.data("word ")
        await turn.error(ErrorBody(code="upstream_error", message="Gone.", stop="llm_gateway"))

    rule = LimitRule(
        requests_per_minute=9, tokens_per_minute=999, concurrent=1, budget=Budget(picos=10**9, period="total")
    )
    async with limited_edges(nats_url, rule, breaks_off) as limited:
        assert "error" in (await limited.first.ask(stream=True, max_tokens=60, model=MODEL)).text
        await limited.first.edge.finished()
        state = await limited.use()
        assert (state.requests, state.seats, state.held_picos) == (1, 0, 0)
        assert state.tokens == 10 + 40  # the prompt as it was counted on entry
        assert state.spent_picos == 40 * 40_000  # as the ledger: no count of the prompt came
        assert [late.picos for late in state.late.values()] == [state.spent_picos]  # it may know more yet


async def test_an_answer_that_breaks_off_is_charged_with_its_prompt_where_its_beginning_told_it(
    nats_url: str,
) -> None:
    async def breaks_off(turn: Turn) -> None:
        await turn.prologue(prompt_tokens=12)
        await turn.data("word ")
        await turn.error(ErrorBody(code="upstream_error", message="Gone.", stop="llm_gateway"))

    rule = LimitRule(tokens_per_minute=999, budget=Budget(picos=10**9, period="total"))
    async with limited_edges(nats_url, rule, breaks_off) as limited:
        assert "error" in (await limited.first.ask(stream=True, max_tokens=60, model=MODEL)).text
        await limited.first.edge.finished()
        state = await limited.use()
        assert state.tokens == 12 + 1
        booked = load_catalog().price_of(MODEL).cost(Usage(prompt_tokens=12, completion_tokens=1))
        assert state.spent_picos == booked > 40_000


@pytest.mark.parametrize(
    ("error", "num_late"),
    [
        (ErrorBody(code="stop_unresponsive", message="Who has it?", stop="inference_router"), 1),
        (ErrorBody(code="content_filter", message="No.", stop="input_guardrails"), 0),
    ],
)
async def test_what_never_began_costs_nothing_unless_the_ledger_says_so_later(
    nats_url: str, error: ErrorBody, num_late: int
) -> None:
    async def refuses(turn: Turn) -> None:
        await turn.error(error)

    rule = LimitRule(tokens_per_minute=999, budget=Budget(picos=10**9, period="total"))
    async with limited_edges(nats_url, rule, refuses) as limited:
        assert "error" in (await limited.first.ask(max_tokens=60, model=MODEL)).json()
        await limited.first.edge.finished()
        state = await limited.use()
        assert (state.tokens, state.held_picos, state.spent_picos) == (0, 0, 0)
        assert len(state.late) == num_late


async def test_what_an_answer_cost_in_which_the_edge_failed_is_looked_for(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(AnswerSoFar, "add", fails)
    rule = LimitRule(concurrent=9, budget=Budget(picos=10**9, period="total"))
    async with limited_edges(nats_url, rule) as limited:
        assert (await limited.first.ask(max_tokens=60, model=MODEL)).status_code == 500
        await limited.first.edge.finished()
        state = await limited.use()
        assert (state.seats, state.held_picos, len(state.late)) == (0, 0, 1)


async def test_an_answer_that_is_heard_out_is_settled_for_good(nats_url: str) -> None:
    rule = LimitRule(budget=Budget(picos=10**9, period="total"))
    async with limited_edges(nats_url, rule) as limited:
        assert (await limited.first.ask(max_tokens=60, model=MODEL)).status_code == 200
        state = await limited.use()
        assert state.spent_picos > 0
        assert not state.late


async def test_a_key_may_be_for_some_models_only(nats_url: str) -> None:
    async with limited_edges(nats_url, LimitRule(), key={"models": ("default", MODEL)}) as limited:
        assert (await limited.first.ask(model=MODEL)).status_code == 200
        refused = await limited.first.ask(model="auto")
        assert (refused.status_code, refused.json()["error"]["param"]) == (403, "model")
        assert "but: default, smollm2-135m" in refused.json()["error"]["message"]
        assert limited.num_turns == 1


async def test_without_a_limit_the_bucket_is_never_asked(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object) -> tuple[bytes, int]:
        raise AssertionError("asked")

    monkeypatch.setattr(NatsBucket, "read", never)
    async with limited_edges(nats_url, LimitRule()) as limited:
        answer = await limited.first.ask()
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


async def test_a_store_that_is_away_closes_limited_keys_and_loses_nothing(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> int:
        raise BusError("baton_limits", "no answer")

    script = Held(prompt_tokens=10, completion_tokens=5)
    async with limited_edges(nats_url, LimitRule(concurrent=2, tokens_per_minute=900), script) as limited:
        body = QUESTION | {"stream": True, "max_tokens": 50}
        async with limited.first.client.stream("POST", CHAT, json=body) as stream:
            with monkeypatch.context() as patched:
                patched.setattr(lane_module, "RETRY_SECONDS", 0.01)
                patched.setattr(grant_module, "SETTLE_SECONDS", 0.01)
                patched.setattr(NatsBucket, "replace", away)
                refused = await limited.first.ask(max_tokens=50)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
                assert refused.json()["error"]["code"] == "bus_unavailable"
                script.go_on.set()
                assert (await stream.aread()).endswith(b"data: [DONE]\n\n")
                assert (await limited.use_as_stored()).seats == 1
        assert (await limited.first.ask(max_tokens=50)).status_code == 200
        state = await limited.use()
        assert (state.seats, state.tokens) == (0, 15 + 15)


async def test_embeddings_count_too(nats_url: str) -> None:
    """Reserved by characters, settled with the embedder's count."""
    async with (
        limited_edges(nats_url, LimitRule(tokens_per_minute=60)) as limited,
        scripted_embedder(limited.bus),
    ):
        edge = limited.first.edge
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        ask = limited.first.client.post
        body = {"model": EMBEDDING_MODEL, "input": ["a" * 90]}
        answer = await ask("/v1/embeddings", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-ratelimit-remaining-tokens"] == "28"
        assert (await limited.use()).tokens == answer.json()["usage"]["prompt_tokens"]
        refused = await ask("/v1/embeddings", json=body | {"input": ["a" * 300]})
        assert refused.status_code == 429


async def test_a_limit_that_is_set_while_all_runs_holds_at_once_and_goes_again(nats_url: str) -> None:
    party = team_party("tenant-live", "ops")
    async with limited_edges(
        nats_url, LimitRule(), key={"tenant_id": "tenant-live", "team": "ops"}
    ) as limited:
        seen: list[int] = []

        async def until(status: int) -> None:
            async with asyncio.timeout(10):
                while True:
                    seen.append((await limited.first.ask()).status_code)
                    if seen[-1] == status:
                        return

        await until(200)
        await put_rule(limited.bus, party, LimitRule(requests_per_minute=0))
        await until(429)
        await put_rule(limited.bus, party, LimitRule())
        await until(200)


async def test_a_first_answer_without_a_bound_reserves_what_the_catalog_allows(nats_url: str) -> None:
    script = Held(prompt_tokens=10, completion_tokens=5)
    async with limited_edges(nats_url, LimitRule(tokens_per_minute=9000), script) as limited:
        asking = asyncio.create_task(limited.first.ask(model=MODEL))
        await eventually(lambda: limited.num_turns == 1)
        assert (await limited.use()).tokens == 10 + 512
        script.go_on.set()
        assert (await asking).status_code == 200
        assert (await limited.use()).tokens == 10 + 5


async def test_an_embedding_models_limit_holds_under_its_other_names(nats_url: str) -> None:
    rules = {model_party(EMBEDDING_MODEL): LimitRule(requests_per_minute=2)}
    async with (
        limited_edges(nats_url, LimitRule(), rules=rules) as limited,
        scripted_embedder(limited.bus),
    ):
        edge = limited.first.edge
        await eventually(lambda: bool(edge.node.leases.ready("embedder")))
        ask = limited.first.client.post
        names = ("embedding", EMBEDDING_MODEL, "embedding")
        bodies = [{"model": name, "input": "a"} for name in names]
        statuses = [(await ask("/v1/embeddings", json=body)).status_code for body in bodies]
        assert statuses == [200, 200, 429]


async def test_what_documents_add_is_reserved_once_known_and_refuses_nothing_itself(
    nats_url: str,
) -> None:
    """First seen 200: its mean is 200, its deviation 100, so 400 are reserved for the next one."""
    script = Held(prompt_tokens=10 + 200, completion_tokens=5)
    async with limited_edges(nats_url, LimitRule(tokens_per_minute=1000), script) as limited:
        script.go_on.set()
        assert (await limited.first.ask(max_tokens=50)).status_code == 200
        assert (await limited.use()).tokens == 215
        script.go_on.clear()
        asking = [asyncio.create_task(limited.first.ask(max_tokens=50))]
        await eventually(lambda: limited.num_turns == 2)
        assert (await limited.use()).tokens == 215 + 10 + 50 + 400
        asking.append(asyncio.create_task(limited.first.ask(max_tokens=50)))
        await eventually(lambda: limited.num_turns == 3)
        assert (await limited.use()).tokens == 1000
        assert await limited.first.refusal(max_tokens=50) == (429, "rate_limit_exceeded")
        script.go_on.set()
        assert [answer.status_code for answer in await asyncio.gather(*asking)] == [200, 200]
        assert (await limited.use()).tokens == 3 * 215


async def test_of_several_prompts_those_that_were_answered_are_paid_whatever_the_others_came_to(
    nats_url: str,
) -> None:
    """Before all had begun, so that the client gets an error and no answer."""

    async def script(turn: Turn) -> None:
        if turn.handoff.chat.messages[0].text == "bad":
            await answered.wait()
            await turn.error(ErrorBody(code="context_length_exceeded", message="Too long."))
            return
        await turn.prologue()
        await turn.data("Hi.")
        await turn.end(prompt_tokens=150, cached_tokens=0, completion_tokens=80)
        answered.set()

    answered = asyncio.Event()
    rule = LimitRule(budget=Budget(picos=parse_dollars("1"), period="total"), tokens_per_minute=5000)
    async with limited_edges(nats_url, rule, script) as limited:
        body = {"model": "smollm2-135m", "prompt": ["good", "bad"]}
        answer = await limited.first.client.post("/v1/completions", json=body)
        assert answer.status_code == 400, answer.text
        await limited.first.edge.finished()
        state = await limited.use()
        assert state.spent_picos == parse_dollars("0.0000062")  # 150 × 0.02 + 80 × 0.04 for a million
        assert state.tokens >= 150 + 80
