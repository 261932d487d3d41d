"""Images for a prompt: from paths, bytes or `ImageContent`, their types detected from the bytes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

import msgspec

from steersman.tools.builtin.images import detect_image_type
from steersman.types.content import ImageContent
from steersman.types.guards import is_instance
from steersman.types.messages import AgentMessage, UserMessage, is_blank

ImageLike: TypeAlias = str | PathLike[str] | bytes | ImageContent


def add_images(prompts: Sequence[AgentMessage], images: Sequence[ImageLike]) -> list[AgentMessage]:
    """The prompts with the images at the end of the last one, which must be the user's."""
    if is_instance(images, str | bytes | PathLike | ImageContent) or not is_instance(images, Sequence):
        raise TypeError(f"Images come as a list, such as images=['plan.png'], got {images!r:.80}.")
    last = prompts[-1] if prompts else UserMessage()
    if not isinstance(last, UserMessage):
        raise ValueError(f"Images belong to a message of the user, and the last message is {last.role!r}.")
    blank = is_blank(last)
    content = [*(() if blank else last.content), *map(read_image, images)]
    return [*prompts[:-1], msgspec.structs.replace(last, content=content)]


def read_image(image: ImageLike) -> ImageContent:
    """An image as content; raises `TypeError` or `ValueError` for what is none, `OSError` for an unreadable file."""
    if isinstance(image, ImageContent):
        return image
    if isinstance(image, bytes | bytearray | memoryview):
        return _encode(bytes(image), f"{len(image)} bytes")
    if is_instance(image, str | PathLike):
        path = Path(fspath(image))
        return _encode(path.read_bytes(), f"the file {str(path)!r}")
    raise TypeError(f"An image is a path, bytes or an ImageContent, got {image!r:.80}.")


def _encode(data: bytes, source: str) -> ImageContent:
    mime_type = detect_image_type(data[:16])
    if mime_type is None:
        raise ValueError(f"Not an image: {source}. Images are PNG, JPEG, GIF or WebP.")
    return ImageContent(b64encode(data).decode("ascii"), mime_type)
