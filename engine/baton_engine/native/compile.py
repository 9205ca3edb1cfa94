"""Compiles the kernels with torch's extension builder: python compile.py FOLDER NAME FLAGS… -- SOURCES…

A program of its own, run in its own process: the builder's imports, environment and failures stay there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    folder, name, *rest = arguments
    cut = rest.index("--")
    _put_ninja_on_path()
    from torch.utils.cpp_extension import load  # noqa: PLC0415 - after PATH is set; half a second of imports

    Path(folder).mkdir(parents=True, exist_ok=True)
    load(
        name=name,
        sources=rest[cut + 1 :],
        extra_cflags=rest[:cut],
        build_directory=folder,
        is_python_module=False,
    )


def _put_ninja_on_path() -> None:
    """The builder looks for ninja on PATH, where an environment that is not activated does not put it."""
    places = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    os.environ["PATH"] = os.pathsep.join(places)


if __name__ == "__main__":
    main(sys.argv[1:])
