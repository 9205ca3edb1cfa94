"""`python -m bench`: what the nine CPU stops add to a question (see relay_overhead)."""

from __future__ import annotations

from bench.relay_overhead import main

if __name__ == "__main__":
    main()
