"""Checks images before they are sent to a model: PNG, JPEG, GIF or WebP by their bytes, complete, and not too large.

A provider that cannot read an image rejects every later request of the conversation, so a doubtful one is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_IMAGE_BYTES = 3_500_000
"""The most bytes of an image: in base64 this stays below the limit of every provider."""
_MAX_PIXELS = 8_000
_MARKERS_WITHOUT_LENGTH = frozenset((0x01, *range(0xD0, 0xD9)))
_MAX_SEGMENTS = 10_000  # of a JPEG before its first frame; each step takes time in the event loop
_NOT_FRAMES = frozenset((0xC4, 0xC8, 0xCC))


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The type and size of an image, read from its bytes."""

    mime_type: str
    width: int
    height: int


def detect_image_type(sample: bytes) -> str | None:
    """Detect the type of an image by its first bytes; `None` for any other file."""
    if sample.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if sample.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if sample.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if sample[:4] == b"RIFF" and sample[8:12] == b"WEBP":
        return "image/webp"
    return None


def inspect_image(data: bytes, mime_type: str) -> ImageInfo:
    """Read the size of an image; raise `ValueError` with the reason when it must not be sent to a model."""
    try:
        size = {
            "image/png": _read_png_size,
            "image/jpeg": _read_jpeg_size,
            "image/gif": _read_gif_size,
            "image/webp": _read_webp_size,
        }[mime_type](data)
    except IndexError:
        size = None
    if size is None:
        raise ValueError("it is malformed or truncated")
    width, height = size
    if not (0 < width <= _MAX_PIXELS and 0 < height <= _MAX_PIXELS):
        raise ValueError(f"it has {width:,} x {height:,} pixels, and at most {_MAX_PIXELS:,} each way can be shown")
    return ImageInfo(mime_type, width, height)


def _read_png_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or b"IEND\xaeB`\x82" not in data[-64:]:
        return None
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def _read_gif_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 14 or b"\x3b" not in data[-16:]:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _read_jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Read the size from the first frame header, after any number of other segments."""
    if b"\xff\xd9" not in data[-1_024:]:
        return None
    place = 2
    for _ in range(_MAX_SEGMENTS):
        if place + 9 >= len(data) or data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker == 0xFF:
            place += 1
        elif marker in _MARKERS_WITHOUT_LENGTH:
            place += 2
        elif 0xC0 <= marker <= 0xCF and marker not in _NOT_FRAMES:
            return int.from_bytes(data[place + 7 : place + 9], "big"), int.from_bytes(
                data[place + 5 : place + 7], "big"
            )
        else:
            place += 2 + int.from_bytes(data[place + 2 : place + 4], "big")
    return None


def _read_webp_size(data: bytes) -> tuple[int, int] | None:
    if int.from_bytes(data[4:8], "little") + 8 > len(data) or len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
        case b"VP8L":
            bits = int.from_bytes(data[21:25], "little")
            return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
        case b"VP8 ":
            return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
        case _:
            return None
