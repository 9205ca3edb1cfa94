"""A user's catalog on top of the one that ships: targets, fallbacks, cache rules, and what a bad one says."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_common.catalog import CatalogError, catalog_of, catalog_or_exit, load_catalog, parse_catalog
from baton_common.money import Price

GOOD = """
[aliases.best]
small = "gpt-4o-mini"
about = "the one that answers best"

[models."gpt-4o-mini"]
context_length = 128000
fallbacks = ["smollm2-135m"]
price = { input = "0.15", cached_input = "0.075", output = "0.6" }

[[models."gpt-4o-mini".targets]]
name = "openai"
base_url = "https://api.openai.com/v1/"
model = "gpt-4o-mini-2024-07-18"
api_key_env = "OPENAI_API_KEY"
max_tokens_field = "max_completion_tokens"
weight = 3

[[models."gpt-4o-mini".targets]]
base_url = "http://10.0.0.5:8000/v1"
extras = ["top_k", "ignore_eos"]
stall_seconds = 7.5
headers = { "x-team" = "core", "api-key" = "$OTHER_KEY" }

[[models."smollm2-135m".targets]]
local = true
weight = 2

[[models."smollm2-135m".targets]]
base_url = "http://10.0.0.6:8000/v1"

[cache]
ttl_seconds = 60
[cache.tenants.acme]
single_flight = true
"""


def test_it_goes_on_top_of_the_one_that_ships() -> None:
    catalog = parse_catalog(GOOD, load_catalog())
    route = catalog.route("gpt-4o-mini")
    first, second = route.targets
    assert (route.context_length, route.fallbacks) == (128000, ("smollm2-135m",))
    assert (first.name, first.base_url, first.model) == (
        "openai",
        "https://api.openai.com/v1",
        "gpt-4o-mini-2024-07-18",
    )
    assert (first.api_key_env, first.weight, first.max_tokens_field) == (
        "OPENAI_API_KEY",
        3.0,
        "max_completion_tokens",
    )
    assert (second.name, second.model, second.extras) == (
        "gpt-4o-mini/1",
        "gpt-4o-mini",
        {"top_k", "ignore_eos"},
    )
    assert (second.stall_seconds, second.headers["x-team"]) == (7.5, "core")
    assert "OTHER_KEY" not in repr(second)
    small = catalog.route("smollm2-135m")
    assert [target.is_local for target in small.targets] == [True, False]
    assert small.context_length == catalog.models["smollm2-135m"].context_length == 8192
    assert catalog.aliases["best"].small == "gpt-4o-mini"
    assert "auto" in catalog.aliases
    assert "gpt-4o-mini" not in catalog.models
    assert catalog.price_of("gpt-4o-mini") == Price(150_000, 75_000, 600_000)
    assert catalog.price_of("smollm2-135m") == load_catalog().models["smollm2-135m"].price
    assert catalog.may_stand_for("best") == ("gpt-4o-mini", "smollm2-135m")


def test_a_model_that_nobody_wrote_down_is_answered_by_our_own_replicas() -> None:
    route = load_catalog().route("somebody-s-own")
    assert (route.needs_replica, [target.is_local for target in route.targets]) == (True, [True])
    assert load_catalog().route("smollm2-135m").needs_replica


def test_cache_rules_of_a_tenant_start_from_those_of_all() -> None:
    book = parse_catalog(GOOD, load_catalog()).cache
    acme, other = book.of("acme"), book.of("other")
    assert (acme.ttl_seconds, acme.single_flight, acme.enabled) == (60.0, True, True)
    assert (other.ttl_seconds, other.single_flight) == (60.0, False)


def test_the_semantic_layer_is_a_wish_of_the_tenant_with_a_threshold_of_its_own() -> None:
    text = "[cache]\nsemantic_threshold = 0.92\n[cache.tenants.acme]\nsemantic = true"
    book = parse_catalog(text + "\n[cache.tenants.b]\nsemantic = true\nsemantic_threshold = 0.97").cache
    rules = [book.of(tenant) for tenant in ("acme", "b", "other")]
    assert [(rule.semantic, rule.semantic_threshold) for rule in rules] == [
        (True, 0.92),
        (True, 0.97),
        (False, 0.92),
    ]


@pytest.mark.parametrize("threshold", ["0.4", "1.1", '"0.9"'])
def test_a_threshold_lies_between_a_half_and_one(threshold: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse_catalog(f"[cache]\nsemantic_threshold = {threshold}")
    assert caught.value.entry == "cache.semantic_threshold"


@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        ('fallbacks = ["smollm2-135m"]', 'fallbacks = ["nobody"]', "models.gpt-4o-mini.fallbacks"),
        ('fallbacks = ["smollm2-135m"]', 'fallbacks = ["gpt-4o-mini"]', "models.gpt-4o-mini.fallbacks"),
        ('"https://api.openai.com/v1/"', '"api.openai.com"', "models.gpt-4o-mini.targets[0].base_url"),
        ('"https://api.openai.com/v1/"', '"http://u:p@x/v1"', "models.gpt-4o-mini.targets[0].base_url"),
        ('"https://api.openai.com/v1/"', '"http://x:99999/v1"', "models.gpt-4o-mini.targets[0].base_url"),
        ("weight = 3", "wieght = 3", "models.gpt-4o-mini.targets[0].wieght"),
        ("weight = 3", "weight = -1", "models.gpt-4o-mini.targets[0].weight"),
        ("weight = 3", 'weight = "3"', "models.gpt-4o-mini.targets[0].weight"),
        ('["top_k", "ignore_eos"]', '["topk"]', "models.gpt-4o-mini.targets[1].extras"),
        (
            '"x-team" = "core"',
            '"content-length" = "3"',
            "models.gpt-4o-mini.targets[1].headers.content-length",
        ),
        ('name = "openai"', 'name = "gpt-4o-mini/1"', "models.gpt-4o-mini.targets"),
        ("local = true", 'local = true\nbase_url = "http://x"', "models.smollm2-135m.targets[0].base_url"),
        ("stall_seconds = 7.5", "stall_seconds = 0", "models.gpt-4o-mini.targets[1].stall_seconds"),
        ('small = "gpt-4o-mini"', 'small = "gpt-5"', "aliases.best.small"),
        ("single_flight = true", "single_flight = 1", "cache.tenants.acme.single_flight"),
        ("[cache]", "[chace]", "chace"),
    ],
)
def test_an_error_names_the_entry(old: str, new: str, entry: str) -> None:
    assert old in GOOD
    with pytest.raises(CatalogError) as caught:
        parse_catalog(GOOD.replace(old, new, 1), load_catalog())
    assert caught.value.entry == entry


def test_a_bad_file_ends_the_start_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert catalog_of(tmp_path) is load_catalog()
    (tmp_path / "catalog.toml").write_text(GOOD.replace("weight = 3", "weight = -1"))
    with pytest.raises(SystemExit) as ended:
        catalog_or_exit(tmp_path)
    assert ended.value.code == 2
    assert "targets[0].weight: must be at least 0, is -1" in capsys.readouterr().err
