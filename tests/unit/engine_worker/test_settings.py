"""Settings of the process become the engine's configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from baton_engine import NgramSpeculation
from baton_engine_worker.settings import Settings


def test_switches_reach_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Settings(model="tiny").engine_config().deterministic
    assert Settings(model="tiny").engine_config().cuda_graphs
    monkeypatch.setenv("BATON_ENGINE_DETERMINISTIC", "true")
    monkeypatch.setenv("BATON_ENGINE_CUDA_GRAPHS", "false")
    config = Settings(model="tiny").engine_config()
    assert config.deterministic
    assert not config.cuda_graphs


def test_keys_and_values_in_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(model="tiny").engine_config().kv_dtype == "auto"
    monkeypatch.setenv("BATON_ENGINE_KV_DTYPE", "int8")
    assert Settings(model="tiny").engine_config().kv_dtype == "int8"


def test_speculation_is_a_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(model="tiny").engine_config().speculation is None
    monkeypatch.setenv("BATON_ENGINE_SPECULATION", "ngram")
    assert Settings(model="tiny").engine_config().speculation == NgramSpeculation()


def test_the_bound_of_an_answer_is_the_operators_then_the_catalogs_then_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Settings(model="my-own-model").answer_bound == 1024
    assert Settings(model="smollm2-135m").answer_bound == 512
    monkeypatch.setenv("BATON_DEFAULT_MAX_TOKENS", "77")
    assert Settings(model="smollm2-135m").answer_bound == 77


def test_calls_are_written_as_the_operator_says_then_as_the_catalog_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert Settings(model="my-own-model", home=tmp_path).stated_tool_format is None
    assert Settings(model="qwen2.5-coder-0.5b", home=tmp_path).stated_tool_format == "hermes"
    monkeypatch.setenv("BATON_TOOL_FORMAT", "pythonic")
    assert Settings(model="qwen2.5-coder-0.5b", home=tmp_path).stated_tool_format == "pythonic"


def test_a_catalog_that_can_not_be_read_ends_the_start_with_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "catalog.toml").write_text("models = 1\n")
    with pytest.raises(SystemExit):
        _ = Settings(model="my-own-model", home=tmp_path).stated_tool_format
    assert str(tmp_path / "catalog.toml") in capsys.readouterr().err
