"""Who is limited, and how: the rules in memory, as keys and the bucket `baton_limits` say.

Owns the map from a request to the parties whose accounts it touches. A key's rule comes with the key; those
of teams and models from the bucket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from baton_contracts.base import MalformedMessage
from baton_contracts.envelope import Tenant
from baton_contracts.limits import (
    LimitRule,
    key_party,
    model_party,
    name_of_party,
    rule_entry,
    team_party,
)

log = logging.getLogger(__name__)

NO_RULE = LimitRule()
_CLOSED = LimitRule(requests_per_minute=0)
"""For a rule that can't be read: better closed than open."""

RuleOfKey = Callable[[str], LimitRule | None]


class RuleBook:
    """`rule_of_key` gets a key id."""

    def __init__(self, rule_of_key: RuleOfKey) -> None:
        self._rule_of_key = rule_of_key
        self._rules: dict[str, LimitRule] = {}
        self.first_sync = asyncio.Event()

    @property
    def synced(self) -> bool:
        """The bucket was read once: until then nobody knows whether a team or a model is limited."""
        return self.first_sync.is_set()

    # What the watch of the bucket tells

    def put(self, entry: str, value: bytes) -> None:
        party = entry.removeprefix(rule_entry(""))
        try:
            rule = LimitRule.decode(value)
        except MalformedMessage as error:
            log.error("limits of %s can't be read, all is refused: %s", party, error)
            rule = _CLOSED
        if rule.is_empty:
            self.remove(entry)
        else:
            self._rules[party] = rule

    def remove(self, entry: str) -> None:
        self._rules.pop(entry.removeprefix(rule_entry("")), None)

    def replace(self, entries: Mapping[str, bytes]) -> None:
        self._rules.clear()
        for entry, value in entries.items():
            self.put(entry, value)
        self.first_sync.set()

    # What a request asks

    def parties(self, tenant: Tenant, models: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are limited, in the order in which they are asked: key, team, models."""
        rule = self._rule_of_key(tenant.key_id)
        found = (key_party(tenant.key_id),) if rule and not rule.is_empty else ()
        if not self._rules:
            return found
        others = (team_party(tenant.tenant_id, tenant.team), *map(model_party, models))
        return found + tuple(party for party in others if party in self._rules)

    def rule(self, party: str) -> LimitRule:
        """It may have been taken away since the party was named."""
        if party.startswith(key_party("")):
            return self._rule_of_key(name_of_party(party)) or NO_RULE
        return self._rules.get(party, NO_RULE)
