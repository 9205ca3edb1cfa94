"""What a ledger row costs, where whoever made the record did not say. Pure.

A price holds from the moment it is in the catalog: rows that are written keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable

from baton_after_answer.records import Record
from baton_common.money import Price
from baton_contracts.records import UsageRecord

PriceOf = Callable[[str], Price]


def priced(record: Record, price_of: PriceOf) -> Record:
    """An answer from the cache costs nothing; its row says what it would have used."""
    if not isinstance(record, UsageRecord) or record.cost_picos is not None:
        return record
    cost = 0 if record.outcome == "cache_hit" else price_of(record.model).cost(record.usage)
    return record.model_copy(update={"cost_picos": cost})
