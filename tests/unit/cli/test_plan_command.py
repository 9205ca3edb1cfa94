"""`baton plan`: the engine's bill, its refusal, and a model that is not here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from baton_cli.commands.plan import plan
from baton_cli.errors import CliError

CONFIG = {
    "model_type": "llama", "vocab_size": 1000, "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32,
    "max_position_embeddings": 1024, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(CONFIG))
    return str(file)


def test_the_bill_of_a_config(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    """KV a token: 2 x 2 layers x 1 head x (32 + 4) bytes; 64 seats of 1,024 tokens."""
    plan(config, quantization="int4", kv_dtype="int8", memory_gib=4.0, chat_tokens=1024)
    printed = capsys.readouterr().out
    assert "65,536 tokens of 144 bytes" in printed
    assert "chats of 1,024 tokens at once: 64" in printed


def test_a_refusal_is_the_planners_own_sentence(config: str) -> None:
    """The others are judged where they are made: tests/unit/engine/test_memory_plan.py."""
    with pytest.raises(CliError, match=r"^--memory-gib is -inf; it must be a number over 0"):
        plan(config, memory_gib=float("-inf"))


def test_a_model_that_is_not_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BATON_HOME", str(tmp_path))
    with pytest.raises(CliError, match="no-such is neither a model that is here"):
        plan("no-such")
