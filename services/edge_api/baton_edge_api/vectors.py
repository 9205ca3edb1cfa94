"""Vectors in the forms that clients ask for: cut, scaled, as numbers or as base64.

Owns the promise that both forms hold the same 32-bit floats. Knows nothing of who made them.
"""

from __future__ import annotations

import base64
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any, Literal

Vector = Sequence[float]


def shortened(vector: Vector, dimensions: int | None) -> Vector:
    """The first `dimensions` numbers, scaled to length 1 (Matryoshka order is the model's matter)."""
    if dimensions is None or dimensions >= len(vector):
        return vector
    head = vector[:dimensions]
    length = math.hypot(*head)
    return tuple(value / length for value in head) if length else head


def in_base64(vector: Vector) -> str:
    """Little-endian 32-bit floats."""
    floats = array("f", vector)
    if sys.byteorder == "big":
        floats.byteswap()
    return base64.b64encode(floats.tobytes()).decode()


def in_numbers(vector: Vector) -> list[float]:
    """The 32-bit floats, written out: equal, digit for digit, to what a client reads from the base64."""
    return array("f", vector).tolist()


def embedding_object(
    index: int, vector: Vector, dimensions: int | None, form: Literal["float", "base64"]
) -> dict[str, Any]:
    chosen = shortened(vector, dimensions)
    value = in_base64(chosen) if form == "base64" else in_numbers(chosen)
    return {"object": "embedding", "index": index, "embedding": value}
