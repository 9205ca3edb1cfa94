"""`bench/gpu.sh` where it can't run: a sentence, not a stack trace; and what its parity part says of wrong
answers.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from bench.gpu import __main__ as bench_gpu
from bench.gpu.parity import Finding
from bench.gpu.speed import Row


def test_without_a_gpu_it_says_what_is_needed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("sys.argv", ["bench/gpu.sh"])
    assert bench_gpu.main() == 1
    assert "This needs an NVIDIA GPU, its driver, and a torch built for CUDA" in capsys.readouterr().err


def test_without_a_model_it_names_the_command(tmp_path: Path) -> None:
    assert "baton models pull smollm2-135m" in (bench_gpu.why_not("cpu", tmp_path) or "")
    (tmp_path / "config.json").touch()
    assert bench_gpu.why_not("cpu", tmp_path) is None


def test_what_it_finds_decides_its_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    results = tmp_path / "gpu.json"
    monkeypatch.setattr(bench_gpu, "RESULTS", results)
    monkeypatch.setattr(bench_gpu, "measure", lambda *_: [Row("graphs", 1, 5.0, 1.25, 800.0)])
    monkeypatch.setattr(
        "sys.argv", ["gpu.sh", "--device", "cpu", "--model", str(tmp_path), "--kinds", "graphs"]
    )
    for right, status in ((True, 0), (False, 2)):
        monkeypatch.setattr(bench_gpu, "check", lambda *_, right=right: [Finding("tokens", right, "3 of 4")])
        assert bench_gpu.main() == status
        assert ('"right": true' in results.read_text()) is right
    assert '"tokens_per_s": 800.0' in results.read_text()
