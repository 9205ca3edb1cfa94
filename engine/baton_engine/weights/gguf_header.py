"""Reads the header of a GGUF file: metadata and the table of tensors (GGUF specification, versions 2 and 3).

Owns the byte layout of the header and its bounds checks. Knows nothing of what a key or a tensor means,
nor of quantised formats: those belong to the `gguf` package. That package's own reader makes several
numpy objects for each string, which costs seconds on a vocabulary of 150,000; this one costs a fraction.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from baton_engine.errors import ModelLoadError

MAGIC: Final = b"GGUF"
SUPPORTED_VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
MAX_DIMENSIONS: Final = 4

# Value type number → struct format of one value.
_SCALARS: Final = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING: Final = 8
_ARRAY: Final = 9


@dataclass(frozen=True)
class TensorInfo:
    """Where one tensor lies. `shape` is in row-major order, the last dimension contiguous."""

    name: str
    shape: tuple[int, ...]
    quantization: GGMLQuantizationType
    offset: int  # bytes from the start of the file
    num_bytes: int


@dataclass(frozen=True)
class GGUFHeader:
    """All of a GGUF file that comes before its tensor data."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorInfo]


def read_header(path: Path) -> GGUFHeader:
    """Parse the header of `path`. Raises ModelLoadError for anything that is not a whole GGUF file."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Parser(path, data).header()
    except (OSError, ValueError) as error:  # ValueError: an empty file can't be mapped
        raise ModelLoadError(f"{path}: can't be read as a GGUF file: {error}") from error


class _Parser:
    """A cursor over the mapped file; every read checks that the bytes are there."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path = path
        self._data = data
        self._position = 0

    def header(self) -> GGUFHeader:
        if self._take(4) != MAGIC:
            raise self._damaged("it does not begin with the letters GGUF")
        version = self._scalar("I")
        if version not in SUPPORTED_VERSIONS:
            raise self._damaged(f"version {version} is not one of {SUPPORTED_VERSIONS}, little-endian")
        num_tensors, num_keys = self._scalar("Q"), self._scalar("Q")
        metadata: dict[str, Any] = {}
        for _ in range(num_keys):
            key = self._string()
            metadata[key] = self._value(self._scalar("I"))
        records = [self._tensor_record() for _ in range(num_tensors)]
        alignment = int(metadata.get("general.alignment", DEFAULT_ALIGNMENT))
        if alignment <= 0:
            raise self._damaged(f"general.alignment is {alignment}")
        start = -(-self._position // alignment) * alignment
        return GGUFHeader(metadata, {record[0]: self._locate(record, start) for record in records})

    def _tensor_record(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        num_dimensions = self._scalar("I")
        if num_dimensions > MAX_DIMENSIONS:
            raise self._damaged(f"tensor {name!r} has {num_dimensions} dimensions")
        shape = tuple(self._scalar("Q") for _ in range(num_dimensions))
        return name, shape[::-1], self._scalar("I"), self._scalar("Q")

    def _locate(self, record: tuple[str, tuple[int, ...], int, int], start: int) -> TensorInfo:
        name, shape, type_number, offset = record
        try:
            quantization = GGMLQuantizationType(type_number)
        except ValueError as error:
            raise self._damaged(f"tensor {name!r} has the unknown type {type_number}") from error
        block_size, block_bytes = GGML_QUANT_SIZES[quantization]
        num_elements = 1
        for size in shape:
            num_elements *= size
        if shape and shape[-1] % block_size:
            raise self._damaged(f"the rows of tensor {name!r} are no multiple of {block_size} long")
        info = TensorInfo(name, shape, quantization, start + offset, num_elements // block_size * block_bytes)
        if info.offset + info.num_bytes > len(self._data):
            raise self._damaged(f"tensor {name!r} lies beyond its end; was the download cut short?")
        return info

    def _value(self, type_number: int) -> Any:
        if type_number == _STRING:
            return self._string()
        if type_number == _ARRAY:
            return self._array()
        return self._scalar(self._format(type_number))

    def _array(self) -> list[Any]:
        type_number, length = self._scalar("I"), self._scalar("Q")
        if type_number in (_STRING, _ARRAY):
            return [self._value(type_number) for _ in range(length)]
        code = self._format(type_number)
        return list(struct.unpack(f"<{length}{code}", self._take(length * struct.calcsize(f"<{code}"))))

    def _format(self, type_number: int) -> str:
        if type_number not in _SCALARS:
            raise self._damaged(f"a metadata value has the unknown type {type_number}")
        return _SCALARS[type_number]

    def _string(self) -> str:
        raw = self._take(self._scalar("Q"))
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._damaged(f"a string before byte {self._position} is not UTF-8") from error

    def _scalar(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self._take(struct.calcsize(f"<{code}")))[0]

    def _take(self, num_bytes: int) -> bytes:
        end = self._position + num_bytes
        if end > len(self._data):
            raise self._damaged("it ends inside its header; was the download cut short?")
        raw = self._data[self._position : end]
        self._position = end
        return raw

    def _damaged(self, reason: str) -> ModelLoadError:
        return ModelLoadError(f"{self._path}: not a usable GGUF file: {reason}")
