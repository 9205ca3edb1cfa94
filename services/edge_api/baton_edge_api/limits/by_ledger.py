"""What the ledger says where an edge could not: of one that is gone, of runs whose last row came late. Pure.

Each of these changes an account once, whoever tries: it is guarded by what was seen when the ledger was
asked. Knows nothing of how that is done.
"""

from __future__ import annotations

from collections.abc import Mapping

from baton_contracts.limits import LateRun
from baton_edge_api.limits.account import Account
from baton_edge_api.limits.holds import Use

LATE_SECONDS = 300.0
"""How long a ledger row of a request that was settled without it may still come."""


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
    """What runs came to beyond what the account said of them when it was looked up is spent now. False, and
    nothing happens, where others have written that since."""
    tally = account.tally
    ours = {run: found for run, found in uses.items() if tally.late.get(run) == found[0]}
    for run, (seen, use) in ours.items():
        tally.spent_picos = max(0, tally.spent_picos + use.picos - seen.picos)
        tally.late[run] = seen.model_copy(update={"picos": use.picos})
        if use.is_all or abs(tally.now - seen.since) >= LATE_SECONDS:
            del tally.late[run]
    return bool(ours)
