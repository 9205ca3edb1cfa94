"""What the ledger says where an edge could not: of one that is gone, of runs whose last row came late. Pure.

Each of these changes an account once, whoever tries: it is guarded by what was seen when the ledger was
asked. Knows nothing of how that is done.
"""

from __future__ import annotations

from collections.abc import Mapping

from baton_contracts.limits import AccountState, LateRun, Slot
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.holds import Use
from baton_edge_api.limits.tally import LATE_SECONDS


def settle_lost(account: Account, edge: str, seq: int, uses: Mapping[str, Use]) -> bool:
    """What an edge that is gone had reserved is replaced by what its runs came to. False, and nothing
    happens, if that was done before, or if it has written since `seq`: then it lives."""
    tally = account.tally
    left = tally.take_left(edge, seq)
    if left is None:
        return False
    counted = {run: tokens for run, tokens in left.items() if tokens}
    tally.count(0, sum(uses[run].tokens - tokens for run, tokens in counted.items()))
    if account.counts_money:
        for run in left:
            tally.spent_picos += uses[run].picos
            if not uses[run].is_all:
                tally.expect_more(run, uses[run].picos)
    return True


def settle_late(account: Account, uses: Mapping[str, tuple[LateRun, Use]]) -> bool:
    """What runs came to beyond what the account said of them when it was looked up is spent now; as long as
    rows may still come, what was heard of them stays spent. False, and nothing happens, where others have
    written that since."""
    tally = account.tally
    ours = {run: found for run, found in uses.items() if tally.late.get(run) == found[0]}
    for run, (seen, use) in ours.items():
        is_over = abs(tally.now - seen.since) >= LATE_SECONDS
        picos = use.picos if use.is_all or is_over else max(use.picos, seen.picos)
        tally.spent_picos = max(0, tally.spent_picos + picos - seen.picos)
        tally.late[run] = seen.model_copy(update={"picos": picos})
        if use.is_all or is_over:
            del tally.late[run]
        if is_over and not use.is_all:
            tally.doubt_spent(LATE_SECONDS)
    return bool(ours)


def raise_spent(account: Account, seen: AccountState, spent_picos: int) -> bool:
    """The ledger had so much when the account was as `seen`: what it lacked then is spent now. What it has
    more stays: the row may be on its way. False, and nothing happens, if anybody has written it since."""
    tally = account.tally
    if tally.period != seen.period or _seqs(tally.slots) != _seqs(seen.slots):
        return False
    tally.spent_picos += max(0, spent_picos - seen.spent_picos)
    tally.look_again()
    return True


def _seqs(slots: Mapping[str, Slot]) -> Mapping[str, int]:
    """Each write by an edge changes its own."""
    return {edge: slot.seq for edge, slot in slots.items()}
