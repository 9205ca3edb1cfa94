"""Sampling defaults of the catalog in a model's folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton_cli.models.generation import write_generation_defaults
from baton_common.catalog import CatalogError, load_catalog, parse_catalog
from tests.support.model_fakes import TINY_MODEL, two_part_catalog


def test_defaults_are_added_and_what_was_there_stays(tmp_path: Path) -> None:
    config = tmp_path / "generation_config.json"
    config.write_text(json.dumps({"eos_token_id": [2, 0], "temperature": 1.0}))
    write_generation_defaults(tmp_path, {"temperature": 0.2, "top_p": 0.9})
    assert json.loads(config.read_text()) == {"eos_token_id": [2, 0], "temperature": 0.2, "top_p": 0.9}
    assert [path.name for path in tmp_path.iterdir()] == ["generation_config.json"]


def test_a_folder_without_the_file_gets_one(tmp_path: Path) -> None:
    write_generation_defaults(tmp_path, {"top_k": 20})
    assert json.loads((tmp_path / "generation_config.json").read_text()) == {"top_k": 20}


def test_without_defaults_nothing_is_written(tmp_path: Path) -> None:
    write_generation_defaults(tmp_path, {})
    assert list(tmp_path.iterdir()) == []


def test_the_shipped_models_have_sampling_defaults() -> None:
    models = load_catalog().models
    assert models["smollm2-135m"].generation == {"temperature": 0.2, "top_p": 0.9}
    assert models["qwen2.5-coder-0.5b"].generation["top_k"] == 20


@pytest.mark.parametrize("line", ["temperature = 3.0", "top_k = 2.5", "beams = 4"])
def test_a_wrong_default_is_named(tmp_path: Path, line: str) -> None:
    catalog, _ = two_part_catalog(tmp_path)
    assert catalog.models["tiny"].generation == {}
    text = f"""{TINY_MODEL}[models.tiny.source]
kind = "huggingface"
upstream = "a/b"
[models.tiny.generation]
{line}
"""
    with pytest.raises(CatalogError, match=line.split(maxsplit=1)[0]):
        parse_catalog(text)
