"""Whether a file is a GGUF model and all of it is there, told from its beginning: the first lines list what follows."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

from steersman.provider.local.weights.disk import WeightsError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_WIDTHS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_ALIGNMENT = "general.alignment"
_MOST = 10_000_000
_U32, _U64, _HEAD = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<4sIQQ")
# Elements and bytes of a block, by type of tensor. A type that is not here counts with its place alone.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 36), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 30: (1, 2),
}  # fmt: skip


def check_gguf(path: Path) -> None:
    """`WeightsError` unless the file is a GGUF model that is there to its end."""
    with path.open("rb") as file:
        start = file.read(_HEAD.size)
        if not start.startswith(_MAGIC):
            raise WeightsError(f"{str(path)!r} is not a GGUF model: it does not begin with 'GGUF'.")
        if len(start) < _HEAD.size:
            raise _cut_short(path)
        _, version, tensors, pairs = _HEAD.unpack(start)
        if version not in _VERSIONS:
            raise WeightsError(f"{str(path)!r} is a GGUF file of version {version}; 2 and 3 can be read.")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                whole = _end(_Reader(data), tensors, pairs) <= len(data)
            except (struct.error, IndexError):
                whole = False  # the list itself goes on behind the end of the file
            except (ValueError, KeyError, OverflowError):
                raise WeightsError(f"{str(path)!r} is a damaged GGUF file; fetch it again.") from None
    if not whole:
        raise _cut_short(path)


def _cut_short(path: Path) -> WeightsError:
    return WeightsError(f"The model {str(path)!r} is cut short: its end is missing. Fetch it again.")


class _Reader:
    __slots__ = ("at", "data")

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = _HEAD.size

    def u32(self) -> int:
        self.at += 4
        return _U32.unpack_from(self.data, self.at - 4)[0]

    def u64(self) -> int:
        self.at += 8
        return _U64.unpack_from(self.data, self.at - 8)[0]

    def string(self) -> bytes:
        length = self.u64()
        self.at += length
        return self.data[self.at - length : self.at]

    def skip(self, kind: int) -> None:
        if kind == _STRING:
            self.string()
        elif kind == _ARRAY:
            self.skip_array()
        else:
            self.at += _WIDTHS[kind]

    def skip_array(self) -> None:
        kind, count = self.u32(), self.u64()
        if kind in _WIDTHS:
            self.at += _WIDTHS[kind] * count
            return
        if kind != _STRING or count > _MOST:
            raise ValueError("an array that no model has")
        data, at, unpack = self.data, self.at, _U64.unpack_from
        for _ in range(count):
            at += 8 + unpack(data, at)[0]
        self.at = at


def _end(read: _Reader, tensors: int, pairs: int) -> int:
    """Where the last tensor ends."""
    if max(tensors, pairs) > _MOST:
        raise ValueError("more than any model has")
    alignment = 32
    for _ in range(pairs):
        key, kind = read.string(), read.u32()
        if key == _ALIGNMENT.encode() and kind == 4:
            alignment = max(1, read.u32())
        else:
            read.skip(kind)
    last = 0
    for _ in range(tensors):
        last = max(last, _tensor_end(read))
    start = -(-read.at // alignment) * alignment
    return start + last


def _tensor_end(read: _Reader) -> int:
    read.string()
    count = 1
    for _ in range(read.u32()):
        count *= read.u64()
    kind, offset = read.u32(), read.u64()
    elements, size = _BLOCKS.get(kind, (1, 0))
    return offset + count // elements * size
