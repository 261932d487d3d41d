"""Pictures of a type that a server does not take: they would fail this request, and every later one with them."""

from __future__ import annotations

from collections.abc import Set

from steersman.types.content import ImageContent, TextContent

_JPEG = "image/jpeg"
_LONGEST_TYPE = 100


def fit_picture(image: ImageContent, taken: Set[str]) -> ImageContent | TextContent:
    """Return the image, or a text in its place if its type is none of those that are `taken`."""
    kind = image.mime_type
    if kind in taken:
        return image
    kind = _JPEG if kind == "image/jpg" else kind.lower()
    if kind in taken:
        return ImageContent(image.data, kind)
    return TextContent(f"[a picture of type {kind[:_LONGEST_TYPE]}, which this model does not take]")
