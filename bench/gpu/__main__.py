"""`bench/gpu.sh`: is the engine right on this GPU, and how fast is it.

--device cpu runs the same on torch's CPU operators: for trying this program out, and for what a switch costs
there.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import baton_engine  # noqa: F401  (before torch)

import torch  # isort: skip

from bench.gpu.parity import Finding, check
from bench.gpu.speed import KINDS, LEVELS, Row, measure
from tests.engine_real.model_folder import model_folder

RESULTS = Path(__file__).parent.parent / "results" / "gpu.json"


def main() -> int:
    options = _options()
    refusal = why_not(options.device, options.model)
    if refusal is not None:
        print(refusal, file=sys.stderr)
        return 1
    started_at = time.monotonic()
    print(f"{device_name(options.device)}, torch {torch.__version__}, {options.model.name}", flush=True)
    findings = [] if options.no_parity else check(options.model, options.device, options.prompts)
    for finding in findings:
        print(finding, flush=True)
    print(Row.header(), flush=True)
    rows: list[Row] = []
    for kind in options.kinds:
        for row in measure(
            options.model, options.device, options.dtype, kind, options.levels, options.tokens
        ):
            print(row, flush=True)
            rows.append(row)
    print(f"{time.monotonic() - started_at:.0f} s")
    RESULTS.write_text(json.dumps(_record(options, findings, rows), indent=1) + "\n", encoding="utf-8")
    return 0 if all(finding.right for finding in findings) else 2


def why_not(device: str, model: Path) -> str | None:
    if device == "cuda" and not torch.cuda.is_available():
        return (
            f"No GPU: torch {torch.__version__} sees no CUDA device here. This needs an NVIDIA GPU, its "
            "driver, and a torch built for CUDA (the pinned one is for CPUs). --device cpu tries it out."
        )
    if not (model / "config.json").is_file():
        return f"No model at {model}: run `baton models pull smollm2-135m`, or give --model FOLDER."
    return None


def device_name(device: str) -> str:
    if device != "cuda":
        return f"{torch.get_num_threads()} CPU threads"
    total = torch.cuda.mem_get_info()[1]
    return f"{torch.cuda.get_device_name()} ({total / 2**30:.0f} GiB)"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/gpu.sh", description=__doc__)
    parser.add_argument("--model", type=Path, default=model_folder())
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--levels", nargs="+", type=int, default=list(LEVELS))
    parser.add_argument("--tokens", nargs=2, type=int, default=(512, 128), metavar=("IN", "OUT"))
    parser.add_argument("--prompts", type=int, default=40, help="how many of the 100 for parity")
    parser.add_argument("--no-parity", action="store_true", help="the table only")
    return parser.parse_args()


def _record(options: argparse.Namespace, findings: list[Finding], rows: list[Row]) -> dict[str, Any]:
    return {
        "command": " ".join(["bench/gpu.sh", *sys.argv[1:]]),
        "device": device_name(options.device),
        "torch": torch.__version__,
        "model": options.model.name,
        "dtype": options.dtype,
        "parity": [finding._asdict() for finding in findings],
        "rows": [row._asdict() for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
