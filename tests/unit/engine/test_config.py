"""What a configuration resolves to on this or that hardware."""

from __future__ import annotations

import pytest
import torch

from tests.support.tiny_model import tiny_config

CUDA = torch.device("cuda")


@pytest.mark.parametrize(("native", "expected"), [(True, torch.bfloat16), (False, torch.float16)])
def test_a_gpu_gets_bfloat16_if_it_multiplies_it(
    native: bool, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: native)
    assert tiny_config(dtype="auto").resolve_dtype(CUDA) is expected
    assert tiny_config(dtype="float32").resolve_dtype(CUDA) is torch.float32


def test_keys_and_values_are_kept_in_the_models_dtype_unless_said() -> None:
    assert tiny_config().resolve_kv_dtype(torch.float16) is torch.float16
    assert tiny_config(kv_dtype="int8").resolve_kv_dtype(torch.bfloat16) is torch.int8
    assert tiny_config(kv_dtype="float32").resolve_kv_dtype(torch.bfloat16) is torch.float32


def test_a_device_is_a_gpu_only_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, expected in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda there=there: there)
        assert tiny_config(device="auto").resolve_device().type == expected
