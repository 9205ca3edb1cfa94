"""`python -m tests.chaos [--requests N] [--at-once K] [--seed S] [--victims V …]`: `make chaos`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.chaos.mischief import OTHERS
from tests.chaos.run import chaos

MOST_SHOWN = 40


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--at-once", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--pulled-model",
        action="store_true",
        help="the real small one; by default two random layers stand for it",
    )
    parser.add_argument(
        "--victims",
        nargs="+",
        default=(),
        choices=sorted({victim for victim, _ in OTHERS}),
        help="behind the first deeds only these; by default all",
    )
    parser.add_argument("--home", type=Path, help="kept afterwards, with up.log; by default a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="baton-chaos-") as temporary:
        home = given.home or Path(temporary) / "home"
        report = chaos(
            home,
            num_requests=given.requests,
            at_once=given.at_once,
            seed=given.seed,
            light=not given.pulled_model,
            victims=given.victims,
        )
    for line in (*report.lines(), *report.problems[:MOST_SHOWN]):
        sys.stdout.write(f"{line}\n")
    sys.stdout.write(f"{report.summary}\n")
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
