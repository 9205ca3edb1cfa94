"""`baton keys`, `baton limits` and `baton usage`: as typed, on a real bus."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import httpx
import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from typer.testing import CliRunner

from baton_cli import terminal
from baton_cli.app import app
from baton_cli.commands.usage import usage_table
from baton_cli.edge_client import EdgeAddress, EdgeClient
from baton_cli.errors import CliError
from baton_cli.limits import Options, limit_book, rule_text, use_text
from baton_common.buckets import open_bucket
from baton_common.money import parse_dollars
from baton_common.spending import Payer
from baton_contracts.keys import KeyEntry, key_hash
from baton_contracts.limits import AccountState, Budget, LimitRule, Slot, team_party, use_entry
from baton_contracts.queries import BooksQuery, BooksReply, UsageSum
from baton_contracts.subjects import BOOKS_ALL, BUCKET_KEYS, BUCKET_LIMITS

T = TypeVar("T")


@pytest.fixture
def baton(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("BATON_NATS_URL", nats_url)
    monkeypatch.setenv("BATON_OPERATOR_PASSWORD", "unused")
    monkeypatch.setattr(terminal.console, "_width", 240)
    monkeypatch.setattr(terminal.console, "_height", 50)

    def run(*words: str) -> str:
        result = CliRunner().invoke(app, words)
        if isinstance(result.exception, CliError):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return run


def on_bus(nats_url: str, work: Callable[[Client], Awaitable[T]]) -> T:
    async def run() -> T:
        client = await nats.connect(nats_url)
        try:
            return await work(client)
        finally:
            await client.close()

    return asyncio.run(run())


def entry_of(nats_url: str, key: str) -> KeyEntry:
    async def read(client: Client) -> KeyEntry:
        bucket = await open_bucket(client.jetstream(), BUCKET_KEYS)
        return KeyEntry.decode((await bucket.get(key_hash(key))).value or b"")

    return on_bus(nats_url, read)


def put_use(nats_url: str, party: str, state: AccountState) -> None:
    async def put(client: Client) -> None:
        bucket = await open_bucket(client.jetstream(), BUCKET_LIMITS)
        await bucket.put(use_entry(party), state.encode())

    on_bus(nats_url, put)


def test_a_key_with_limits_from_its_making_to_its_end(nats_url: str, baton: Callable[..., str]) -> None:
    made = baton(
        *("keys", "create", "ci", "--team", "ops", "--rpm", "60", "--tpm", "9000", "--concurrent", "4"),
        *("--budget", "12.50", "--period", "day", "--models", "auto,default"),
    )
    key = made.split()[0]
    entry = entry_of(nats_url, key)
    assert entry.limits == LimitRule(
        requests_per_minute=60,
        tokens_per_minute=9000,
        concurrent=4,
        budget=Budget(picos=parse_dollars("12.5"), period="day"),
    )
    assert (entry.team, entry.models) == ("ops", ("auto", "default"))
    assert "60/min · 9000 tokens/min · 4 at once · $12.50 a day. Models: auto, default." in made
    state = AccountState(
        window_start=time.time(), requests=7, tokens=300, slots={"edge_api-1": Slot(seats=2)}
    )
    put_use(nats_url, f"key.{entry.key_id}", state)
    assert "7 · 300 tokens · 2 at once · $0.00" in baton("keys", "list")
    changed = baton("keys", "limits", entry.key_id, "--tpm", "none", "--alert", "50", "--models", "all")
    assert "60/min · 4 at once · $12.50 a day. Models: all." in changed
    rotated = baton("keys", "rotate", entry.key_id, "--grace", "15m").split()[0]
    assert entry_of(nats_url, rotated).limits == entry_of(nats_url, key).limits
    assert "replaced, valid for 15 min" in baton("keys", "list")
    baton("keys", "revoke", entry.key_id)
    assert entry_of(nats_url, key).revoked
    assert entry_of(nats_url, rotated).revoked


def test_limits_of_teams_and_models(nats_url: str, baton: Callable[..., str]) -> None:
    team = f"Größe {secrets.token_hex(3)}"
    assert baton("limits", "set", "team", team, "--rpm", "10", "--budget", "3").endswith(
        f"team {team}: 10/min · $3.00 a month\n"
    )
    baton("limits", "set", "team", team, "--concurrent", "2")
    shown = baton("limits", "list")
    assert re.search(
        rf"team default/{team} +10/min · 2 at once · \$3.00 a month +0 · 0 at once · \$0.00", shown
    )
    baton("limits", "remove", "team", team)
    assert team not in baton("limits", "list")
    with pytest.raises(CliError, match="has no limits"):
        baton("limits", "remove", "team", team)


async def test_a_recount_takes_the_ledgers_word(nats_url: str) -> None:
    team = f"team-{secrets.token_hex(4)}"
    party = team_party("acme", team)
    client = await nats.connect(nats_url)
    asked: list[BooksQuery] = []

    async def books(message: Msg) -> None:
        asked.append(BooksQuery.decode(message.data))
        counts = {
            "requests": 1,
            "attempts": 1,
            "prompt_tokens": 1,
            "cached_tokens": 0,
            "completion_tokens": 1,
        }
        sums = (UsageSum(team=team, cost_picos=700, **counts), UsageSum(team="x", cost_picos=9, **counts))
        await message.respond(BooksReply(sums=sums).encode())

    await client.subscribe(BOOKS_ALL, cb=books)
    try:
        book = await limit_book(client)
        rule = await book.change(party, lambda _: LimitRule(budget=Budget(picos=1000, period="total")))
        bucket = await open_bucket(client.jetstream(), BUCKET_LIMITS)
        held = {"edge_api-1": Slot(seq=4, seats=1, held_picos=50)}
        state = AccountState(period="total", spent_picos=300, alerted=True, slots=held)
        await bucket.put(use_entry(party), state.encode())
        assert await book.recount(party, rule, Payer("team", team, {"acme"})) == (300, 700)
        assert await book.use(party) == state.model_copy(update={"spent_picos": 700, "alerted": False})
        assert asked == [BooksQuery(kind="usage_sums", tenant_id="acme", by=("team",), team=team)]
        both = {"acme", "umbrella"}
        assert await book.recount(party, rule, Payer("team", team, both)) == (700, 1400)
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (Options(rpm="many"), "--rpm takes a whole number"),
        (Options(tpm="-4"), "--tpm takes a whole number"),
        (Options(budget="a lot"), "--budget is not an amount of dollars"),
        (Options(period="day"), "name one with --budget"),
    ],
)
def test_what_can_not_be_a_limit_is_said(options: Options, words: str) -> None:
    with pytest.raises(CliError, match=words):
        options.change(LimitRule())


def test_what_is_not_named_stays() -> None:
    before = LimitRule(requests_per_minute=5, budget=Budget(picos=7, period="day", alert_percent=50))
    assert Options(concurrent="3").change(before) == before.model_copy(update={"concurrent": 3})
    budget = Options(budget="2").change(before).budget
    assert budget == Budget(picos=parse_dollars("2"), period="day", alert_percent=50)
    assert Options(rpm="none", budget="none").change(before) == LimitRule()


def test_a_budget_tells_when_it_was_set_where_there_was_none() -> None:
    """What was spent before, in the same period, is then looked up; a new key has spent nothing."""
    assert Options(budget="2").change(LimitRule()).budget == Budget(picos=parse_dollars("2"))
    first = Options(budget="2", typed_at=7.0).change(LimitRule())
    assert first.budget == Budget(picos=parse_dollars("2"), set_at=7.0)
    raised = Options(budget="3", typed_at=9.0).change(first)
    assert raised.budget == Budget(picos=parse_dollars("3"), set_at=7.0)


def test_an_old_window_and_an_old_period_are_not_use() -> None:
    rule = LimitRule(requests_per_minute=5, budget=Budget(picos=7, period="month"))
    state = AccountState(window_start=1000.0, requests=4, period="2026-10", spent_picos=7)
    assert use_text(rule, state, 1_796_000_000.0) == "0 · $0.00"
    assert rule_text(LimitRule()) == "none"


def test_usage_is_asked_of_the_edge_and_shown() -> None:
    row = {
        "team": "ops",
        "day": "2026-11-29",
        "requests": 1200,
        "attempts": 1201,
        "prompt_tokens": 5,
        "cached_tokens": 1,
        "completion_tokens": 4,
        "cost_usd": "0.00000096",
    }
    seen: list[httpx.URL] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.url)
        more = None if "page" in request.url.params else "1000-1.5"
        day = row | {"day": f"2026-11-{29 - len(seen)}"}
        return httpx.Response(200, text=json.dumps({"object": "list", "data": [day], "next_page": more}))

    client = EdgeClient(EdgeAddress("http://edge", "k"), httpx.MockTransport(answer))
    rows = client.usage({"by": "team,day", "since": "2026-11-01"})
    client.close()
    url = "http://edge/v1/usage?by=team%2Cday&since=2026-11-01"
    assert [str(each) for each in seen] == [url, f"{url}&page=1000-1.5"]
    assert [each["day"] for each in rows] == ["2026-11-28", "2026-11-27"]
    table = usage_table(rows)
    assert [column.header for column in table.columns][:3] == ["Team", "Day", "Requests"]
    assert [next(iter(column.cells)) for column in table.columns] == [
        *("ops", "2026-11-28", "1,200", "1,201", "5", "1", "4", "$0.00000096")
    ]
    last = [list(column.cells)[-1] for column in table.columns]
    assert last == ["All", "", "2,400", "2,402", "10", "2", "8", "$0.00000192"]


def test_names_are_shown_as_they_were_given(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.console.print(usage_table([{"team": "ops [eu]"}, {"team": "a[/b]:on:"}]))
    told = capsys.readouterr().out
    assert "ops [eu]" in told
    assert "a[/b]:on:" in told
