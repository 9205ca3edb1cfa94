"""python -m baton_engine.native: compiles the kernels into the cache now, so that no start waits for it."""

from __future__ import annotations

import sys

from baton_engine.native.cache import NativeUnavailable
from baton_engine.native.library import load_library


def main() -> int:
    try:
        library = load_library()
        print(f"native kernels: {library.path} ({library.isa()})")
    except NativeUnavailable as error:
        print(f"no native kernels, the engine will run on torch: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
