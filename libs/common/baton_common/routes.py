"""What answers under a model's name: its targets, what steps in for it, and what may be answered again.

Owns the meaning of `targets`, `fallbacks` and `[cache]` in a catalog. Opens no connection and reads no key:
it only says in which environment variable one is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from urllib.parse import urlsplit

from baton_common.catalog_table import CatalogError, Table
from baton_common.money import NotMoney, Price, parse_price

EXTRAS = frozenset(
    {
        "top_k",
        "min_p",
        "repetition_penalty",
        "min_tokens",
        "stop_token_ids",
        "ignore_eos",
        "include_stop_str_in_output",
        "skip_special_tokens",
        "bad_words",
        "allowed_token_ids",
        "truncate_prompt_tokens",
        "chat_template_kwargs",
        "structured_outputs",
    }
)
"""Parameters outside OpenAI's specification: sent to a server only if its target says that it takes them."""

_ROUTE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OWN_HEADERS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "accept"}
)
_TARGET_KEYS = (
    "name",
    "base_url",
    "model",
    "api_key_env",
    "headers",
    "weight",
    "extras",
    "max_tokens_field",
    "connect_seconds",
    "first_token_seconds",
    "stall_seconds",
    "cooldown_seconds",
)


@dataclass(frozen=True)
class Target:
    """One place where a model is answered. Without `base_url`: our own replicas, found by the router."""

    name: str
    """Unique in the catalog; what ledger, traces and headers call it."""
    base_url: str = ""
    """Up to and with `/v1`; `/chat/completions` is put behind it."""
    model: str = ""
    """What the server calls the model."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; empty: no key is sent."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """A value `$NAME` is taken from the environment variable NAME."""
    weight: float = 1.0
    """Its share among the targets of a model; 0: only when all others failed."""
    extras: frozenset[str] = frozenset()
    max_tokens_field: str = "max_tokens"
    connect_seconds: float = 5.0
    first_token_seconds: float = 60.0
    stall_seconds: float = 30.0
    """Silence between two pieces of an answer after which it is given up."""
    cooldown_seconds: float = 10.0
    """How long it is left alone after failures in a row; doubles while they go on. 0: never."""

    @property
    def is_local(self) -> bool:
        return not self.base_url


@dataclass(frozen=True)
class Route:
    """A name that clients may ask for. `fallbacks` are tried in order once all targets have failed."""

    name: str
    targets: tuple[Target, ...]
    fallbacks: tuple[str, ...] = ()
    context_length: int | None = None
    price: Price = field(default_factory=Price)

    @property
    def needs_replica(self) -> bool:
        """Nothing but our own replicas answers under this name."""
        return all(target.is_local for target in self.targets)


@dataclass(frozen=True)
class CacheRules:
    """What a tenant lets the gateway answer without a model. None: as the gateway's settings say."""

    enabled: bool = True
    ttl_seconds: float | None = None
    sampled: bool | None = None
    """Also answers that were sampled without a seed are given again."""
    single_flight: bool = False
    """Identical requests under way at the same time are one call."""
    semantic: bool = False
    """Also the answer to a question that only was phrased otherwise is given."""
    semantic_threshold: float = 0.9
    """How alike the two phrasings must be: the cosine of their vectors."""


@dataclass(frozen=True)
class CacheBook:
    default: CacheRules = CacheRules()
    tenants: Mapping[str, CacheRules] = field(default_factory=dict[str, CacheRules])

    def of(self, tenant_id: str) -> CacheRules:
        return self.tenants.get(tenant_id, self.default)


def local_route(name: str) -> Route:
    return Route(name, (Target(f"{name}/local"),))


def read_route(name: str, table: Table, below: Route | None) -> Route:
    """What the table does not say stays as it is in `below`. Raises CatalogError. Whether fallbacks exist is
    looked at once all routes are known."""
    if not _ROUTE_NAME.fullmatch(name):
        raise CatalogError(table.path, "names are letters, digits and . _ - : / @")
    route = below or local_route(name)
    targets = tuple(_target(name, number, row) for number, row in enumerate(table.rows("targets")))
    if targets and not any(target.weight for target in targets):
        raise table.fail("targets", "one of them needs a weight above 0")
    length = table.positive("context_length") if table.has("context_length") else route.context_length
    return replace(
        route,
        targets=targets or route.targets,
        fallbacks=table.texts("fallbacks") if table.has("fallbacks") else route.fallbacks,
        context_length=length,
        price=read_price(table.table("price")) if table.has("price") else route.price,
    )


def read_price(table: Table) -> Price:
    """US dollars per million tokens, as text: a float would not be the number that was written."""
    table.only("input", "cached_input", "output")
    if not table.names():
        return Price()
    entered, answered = _amount(table, "input"), _amount(table, "output")
    cached = _amount(table, "cached_input") if table.has("cached_input") else entered
    return Price(entered, cached, answered)


def _amount(table: Table, key: str) -> int:
    try:
        return parse_price(table.text(key))
    except NotMoney as error:
        raise table.fail(key, str(error)) from None


def _target(model: str, number: int, row: Table) -> Target:
    row.only("local", *_TARGET_KEYS)
    name = row.optional_text("name") or f"{model}/{number}"
    weight = row.number("weight", 1.0)
    if row.flag("local", default=False):
        if row.has("base_url"):
            raise row.fail("base_url", "is given for a local target: leave one of the two out")
        return Target(row.optional_text("name") or f"{model}/local", weight=weight)
    limits = Target(name)
    extras = frozenset(row.texts("extras"))
    if unknown := sorted(extras - EXTRAS):
        raise row.fail("extras", f"{unknown[0]!r} is none; there are {', '.join(sorted(EXTRAS))}")
    return Target(
        name=name,
        base_url=_base_url(row),
        model=row.optional_text("model") or model,
        api_key_env=row.optional_text("api_key_env") or "",
        headers=_headers(row),
        weight=weight,
        extras=extras,
        max_tokens_field=_max_tokens_field(row),
        connect_seconds=row.number("connect_seconds", limits.connect_seconds, least=0.001),
        first_token_seconds=row.number("first_token_seconds", limits.first_token_seconds, least=0.001),
        stall_seconds=row.number("stall_seconds", limits.stall_seconds, least=0.001),
        cooldown_seconds=row.number("cooldown_seconds", limits.cooldown_seconds),
    )


def _base_url(row: Table) -> str:
    url = row.text("base_url").rstrip("/")
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_whole = False
        parts = urlsplit("")
    if not is_whole:
        raise row.fail("base_url", "must be a whole URL like https://api.example.com/v1")
    if parts.username or parts.query or parts.fragment:
        raise row.fail("base_url", "must have no user, query or fragment; name the key by api_key_env")
    return url


def _headers(row: Table) -> Mapping[str, str]:
    table = row.optional_table("headers")
    found: dict[str, str] = {}
    for name in table.names():
        value = table.text(name)
        if not _HEADER.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise table.fail(name, "is no header that can be set")
        if not value.isascii() or not value.isprintable():
            raise table.fail(name, "must be printable ASCII")
        found[name] = value
    return MappingProxyType(found)


def _max_tokens_field(row: Table) -> str:
    if not row.has("max_tokens_field"):
        return "max_tokens"
    return row.one_of("max_tokens_field", ("max_tokens", "max_completion_tokens"))


def check_routes(routes: Mapping[str, Route]) -> None:
    """Raises CatalogError for a fallback that leads nowhere and for a name that two targets share."""
    taken: set[str] = set()
    for route in routes.values():
        for fallback in route.fallbacks:
            if fallback not in routes or fallback == route.name:
                raise CatalogError(f"models.{route.name}.fallbacks", f"{fallback!r} is no other model")
        for target in route.targets:
            if target.name in taken:
                raise CatalogError(f"models.{route.name}.targets", f"the name {target.name!r} is taken")
            taken.add(target.name)


def read_cache(table: Table) -> CacheBook:
    """Raises CatalogError."""
    default = _cache_rules(table, CacheRules(), "tenants")
    tenants = table.tables("tenants") if table.has("tenants") else []
    return CacheBook(default, MappingProxyType({name: _cache_rules(each, default) for name, each in tenants}))


def _cache_rules(table: Table, default: CacheRules, *more: str) -> CacheRules:
    table.only("enabled", "ttl_seconds", "sampled", "single_flight", "semantic", "semantic_threshold", *more)
    ttl = table.number("ttl_seconds", 0.0, least=0.001) if table.has("ttl_seconds") else default.ttl_seconds
    return CacheRules(
        enabled=table.flag("enabled", default.enabled),
        ttl_seconds=ttl,
        sampled=table.flag("sampled") if table.has("sampled") else default.sampled,
        single_flight=table.flag("single_flight", default.single_flight),
        semantic=table.flag("semantic", default.semantic),
        semantic_threshold=_threshold(table, default.semantic_threshold),
    )


def _threshold(table: Table, default: float) -> float:
    """Below one half even questions about different things are alike."""
    threshold = table.number("semantic_threshold", default, least=0.5)
    if threshold > 1:
        raise table.fail("semantic_threshold", f"must be at most 1, is {threshold:g}")
    return threshold
