"""One account: what fits, what doesn't, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from baton_common.money import Price
from baton_contracts.limits import AccountState, Budget, LimitRule, Slot, period_name, period_start
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.holds import Hold, Use
from baton_edge_api.limits.standing import Refusal
from baton_edge_api.limits.wish import Wish

T0 = 1_796_000_000.0  # 2026-11-30 01:33:20 UTC


@dataclass
class Ledger:
    """An account over time, as a store would keep it."""

    rule: LimitRule
    state: AccountState = field(default_factory=AccountState)
    now: float = T0

    def open(self, edge: str = "edge-1") -> Account:
        return Account(self.state, self.rule, edge, self.now)

    def reserve(self, wish: Wish, edge: str = "edge-1") -> Hold | Refusal:
        account = self.open(edge)
        found = account.reserve(wish)
        self.state = account.tally.state
        return found

    def settle(self, hold: Hold, use: Use, edge: str = "edge-1") -> None:
        account = self.open(edge)
        account.settle(hold, use)
        self.state = account.tally.state

    def release(self, hold: Hold, edge: str = "edge-1") -> None:
        account = self.open(edge)
        account.release(hold)
        self.state = account.tally.state


def held(found: Hold | Refusal) -> Hold:
    assert isinstance(found, Hold), found
    return found


def refused(found: Hold | Refusal) -> Refusal:
    assert isinstance(found, Refusal), found
    return found


def sixty(prompt: int = 20) -> Wish:
    return Wish(prompt, 60 - prompt)


def test_of_five_with_sixty_tokens_one_fits_a_hundred() -> None:
    ledger = Ledger(LimitRule(tokens_per_minute=100))
    found = [ledger.reserve(sixty()) for _ in range(5)]
    assert [isinstance(one, Hold) for one in found] == [True, False, False, False, False]
    refusal = refused(found[1])
    assert (refusal.kind, refusal.used, refusal.wanted, refusal.retry_after_seconds) == ("tokens", 60, 60, 60)


def test_a_guess_shrinks_to_what_is_left_and_settles_to_the_real_use() -> None:
    ledger = Ledger(LimitRule(tokens_per_minute=100))
    hold = held(ledger.reserve(Wish(12, 1024, may_shrink=True)))
    assert hold.tokens == 100
    ledger.settle(hold, Use(tokens=30))
    assert ledger.state.tokens == 30
    assert held(ledger.reserve(Wish(60, 1024, may_shrink=True))).tokens == 70


def test_a_prompt_that_is_too_long_can_never_fit() -> None:
    ledger = Ledger(LimitRule(tokens_per_minute=100))
    assert refused(ledger.reserve(Wish(100, 50, may_shrink=True))).can_never_fit
    assert held(ledger.reserve(Wish(99, 50, may_shrink=True))).tokens == 100


def test_a_refusal_costs_nothing() -> None:
    ledger = Ledger(LimitRule(requests_per_minute=2, tokens_per_minute=100, concurrent=9))
    held(ledger.reserve(sixty()))
    before = ledger.state
    for _ in range(100):
        refused(ledger.reserve(sixty()))
    assert ledger.state == before


def test_the_window_opens_with_its_first_request_and_lasts_a_minute() -> None:
    ledger = Ledger(LimitRule(requests_per_minute=1))
    held(ledger.reserve(sixty()))
    ledger.now = T0 + 12.5
    assert refused(ledger.reserve(sixty())).retry_after_seconds == 47.5
    assert ledger.open().standing.view.reset_seconds == 47.5
    ledger.now = T0 + 60
    assert ledger.open().standing.view.reset_seconds == 0
    assert held(ledger.reserve(sixty())).window_start == T0 + 60


def test_what_was_reserved_in_an_older_window_is_not_given_back_to_a_newer() -> None:
    ledger = Ledger(LimitRule(tokens_per_minute=100))
    long = held(ledger.reserve(sixty()))
    ledger.now = T0 + 70
    held(ledger.reserve(sixty()))
    ledger.settle(long, Use(tokens=10))
    assert ledger.state.tokens == 60
    ledger.release(long)
    assert ledger.state.tokens == 60


def test_use_beyond_the_guess_counts_in_the_window_in_which_it_is_known() -> None:
    ledger = Ledger(LimitRule(tokens_per_minute=100))
    long = held(ledger.reserve(sixty()))
    ledger.now = T0 + 70
    ledger.settle(long, Use(tokens=85))
    assert (ledger.state.tokens, ledger.state.window_start) == (25, T0 + 70)


def test_seats_are_of_all_edges_and_a_dead_one_gives_its_own_back() -> None:
    ledger = Ledger(LimitRule(concurrent=2))
    one = held(ledger.reserve(sixty(), "edge-1"))
    held(ledger.reserve(sixty(), "edge-2"))
    refusal = refused(ledger.reserve(sixty(), "edge-1"))
    assert (refusal.kind, refusal.retry_after_seconds) == ("concurrent", 1.0)
    account = ledger.open("edge-1")
    account.tally.lose_edge("edge-2")
    ledger.state = account.tally.state
    held(ledger.reserve(sixty(), "edge-1"))
    ledger.settle(one, Use(), "edge-1")
    assert ledger.state.seats == 1


def test_a_seat_may_be_free_before_the_rest_is_settled() -> None:
    ledger = Ledger(LimitRule(concurrent=1, tokens_per_minute=100))
    account = ledger.open()
    hold = account.free_seat(held(account.reserve(sixty())))
    assert account.tally.state.seats == 0
    account.settle(hold, Use(tokens=5))
    assert (account.tally.state.seats, account.tally.state.tokens) == (0, 5)


def test_a_budget_that_is_spent_is_no_matter_of_waiting() -> None:
    price = Price(1, 1, 10)
    ledger = Ledger(LimitRule(budget=Budget(picos=1000, period="day")))
    hold = held(ledger.reserve(Wish(100, 80, price)))
    assert ledger.state.held_picos == 900
    assert refused(ledger.reserve(Wish(100, 10, price))).kind == "budget_held"
    ledger.settle(hold, Use(180, 900))
    assert (ledger.state.held_picos, ledger.state.spent_picos) == (0, 900)
    assert refused(ledger.reserve(Wish(100, 10, price))).kind == "budget"
    ledger.now = T0 + 86_400
    assert held(ledger.reserve(Wish(100, 80, price))).picos == 900


def test_the_guess_shrinks_to_the_money_that_is_left() -> None:
    ledger = Ledger(LimitRule(budget=Budget(picos=1000, period="total")))
    assert held(ledger.reserve(Wish(100, 1024, Price(1, 1, 10), may_shrink=True))).picos == 1000


def test_the_alert_is_given_once_a_period() -> None:
    ledger = Ledger(LimitRule(budget=Budget(picos=1000, period="month", alert_percent=80)))
    account = ledger.open()
    account.settle(held(account.reserve(Wish(1, 1, Price(1, 1, 1)))), Use(2, 799))
    assert not account.begin_alert()
    assert account.standing.view.spent_percent is None
    account.settle(held(account.reserve(Wish(1, 1, Price(1, 1, 1)))), Use(2, 1))
    assert account.begin_alert()
    assert not account.begin_alert()
    assert account.standing.view.spent_percent == 80


def test_periods_are_utc() -> None:
    assert period_name("day", T0) == "2026-11-30"
    assert period_name("month", T0) == "2026-11"
    assert period_name("total", T0) == "total"
    assert period_start("day", T0) == 1_795_996_800.0
    assert period_start("month", T0) == 1_793_491_200.0
    assert period_start("total", T0) == 0


def test_a_window_from_far_ahead_locks_nobody_out() -> None:
    """Of an edge whose clock went wrong by years; one that is a little ahead stays."""
    ledger = Ledger(LimitRule(requests_per_minute=1))
    ledger.state = AccountState(window_start=T0 + 9e7, requests=1)
    assert isinstance(ledger.reserve(Wish(0, 0)), Hold)
    assert ledger.state.window_start == T0
    ledger.state = AccountState(window_start=T0 + 5, requests=1)
    assert isinstance(ledger.reserve(Wish(0, 0)), Refusal)


def test_what_is_not_limited_is_not_counted() -> None:
    ledger = Ledger(LimitRule(concurrent=3))
    hold = held(ledger.reserve(sixty()))
    assert hold == Hold(seats=1)
    assert (ledger.state.window_start, ledger.state.tokens, ledger.state.requests) == (0, 0, 0)


RULE = LimitRule(
    requests_per_minute=6, tokens_per_minute=300, concurrent=4, budget=Budget(picos=4000, period="total")
)
PRICE = Price(2, 1, 5)
EDGES = ("edge-1", "edge-2", "edge-3")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["reserve", "settle", "release", "free_seat", "wait", "die"]),
        st.integers(0, 2),
        st.integers(0, 90),
        st.integers(1, 120),
        st.booleans(),
    ),
    max_size=60,
)


@given(STEPS)
def test_in_any_order_sums_are_equal_and_nothing_goes_below_zero(
    steps: list[tuple[str, int, int, int, bool]],
) -> None:
    ledger = Ledger(RULE)
    under_way: list[tuple[str, Hold]] = []
    spent = 0
    for kind, which, prompt, output, guess in steps:
        edge = EDGES[which]
        account = ledger.open(edge)
        if kind == "reserve":
            found = account.reserve(Wish(prompt, output, PRICE, may_shrink=guess))
            if isinstance(found, Hold):
                under_way.append((edge, found))
                assert account.tally.state.requests <= 6
                assert account.tally.state.tokens <= 300
                assert account.tally.state.seats <= 4
                assert account.tally.state.spent_picos + account.tally.state.held_picos <= 4000
        elif kind == "wait":
            ledger.now += float(prompt)
            continue
        elif kind == "die":
            account.tally.lose_edge(edge)
            under_way = [one for one in under_way if one[0] != edge]
        elif under_way:
            edge, hold = under_way.pop(prompt % len(under_way))
            account = ledger.open(edge)
            if kind == "settle":
                account.settle(hold, Use(prompt + output, PRICE.at_most(prompt, output)))
                spent += PRICE.at_most(prompt, output)
            elif kind == "release":
                account.release(hold)
            else:
                under_way.append((edge, account.free_seat(hold)))
        ledger.state = state = account.tally.state
        assert min(state.requests, state.tokens, state.spent_picos) >= 0
        assert state.seats == sum(hold.seats for _, hold in under_way)
        assert state.held_picos == sum(hold.picos or 0 for _, hold in under_way)
        assert state.spent_picos == spent
        reserved = sum(hold.tokens or 0 for _, hold in under_way if hold.window_start == state.window_start)
        assert state.window_start == 0 or state.tokens >= reserved


def test_a_slot_that_others_took_out_never_goes_below_zero() -> None:
    ledger = Ledger(LimitRule(concurrent=1))
    hold = held(ledger.reserve(sixty()))
    account = ledger.open()
    account.tally.lose_edge("edge-1")
    account.settle(hold, Use())
    assert account.tally.state.slots["edge-1"] == Slot(seats=0)


def test_there_is_room_while_not_a_quarter_of_anything_that_comes_back_is_taken() -> None:
    tokens = Ledger(LimitRule(requests_per_minute=1, tokens_per_minute=400))
    held(tokens.reserve(sixty(prompt=40)))
    assert tokens.open().standing.has_room, "requests do not come back"
    assert not Ledger(tokens.rule, AccountState(window_start=T0, tokens=101)).open().standing.has_room

    budget = Budget(
        picos=1000, period="total", alert_percent=80
    )  # the alert at 800, a quarter of that is 200
    for spent, held_picos, has_room in ((100, 100, True), (101, 100, False), (201, 0, False)):
        state = AccountState(
            period=period_name("total", T0), spent_picos=spent, slots={"edge-2": Slot(held_picos=held_picos)}
        )
        assert Ledger(LimitRule(budget=budget), state).open().standing.has_room == has_room
