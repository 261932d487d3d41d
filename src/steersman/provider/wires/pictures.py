"""Pictures of a type that a server does not take: they would fail this request, and every later one with them.

The bytes of a picture decide its type where they tell it: Claude refuses one that is declared as another type, and a
file's name or a tool often tells a wrong one.
"""

from __future__ import annotations

from collections.abc import Set

from steersman.types.content import ImageContent, TextContent

_JPEG = "image/jpeg"
_LONGEST_TYPE = 100

# How the base64 text of a file begins, and which characters in it tell what a container holds.
_BEGINNINGS = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", _JPEG),
    ("R0lGODdh", "image/gif"),
    ("R0lGODlh", "image/gif"),
    ("UklGR", "image/webp"),
)
_LONGEST_BEGINNING = 16
_HEIF = {"eXBoZWlj": "image/heic", "eXBoZWl4": "image/heic", "eXBtaWYx": "image/heif", "eXBhdmlm": "image/avif"}
_WEBP = "RUJQ"


def fit_picture(image: ImageContent, taken: Set[str]) -> ImageContent | TextContent:
    """Return the image under its real type, or a text in its place if its type is none of those that are `taken`."""
    kind = _detect_type(image.data[:_LONGEST_BEGINNING]) or image.mime_type
    if kind == image.mime_type and kind in taken:
        return image
    kind = _JPEG if kind == "image/jpg" else kind.lower()
    if kind in taken:
        return ImageContent(image.data, kind)
    return TextContent(f"[a picture of type {kind[:_LONGEST_TYPE]}, which this model does not take]")


def _detect_type(begin: str) -> str | None:
    """Detect the type of a picture by the beginning of its base64 text; `None` for what is not known."""
    for text, kind in _BEGINNINGS:
        if begin.startswith(text):
            return kind if kind != "image/webp" or begin.endswith(_WEBP) else None
    return _HEIF.get(begin[8:])
