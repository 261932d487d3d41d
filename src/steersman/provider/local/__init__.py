"""The embedded model: runs in a child process of ours, from a file whose checksum is known.

Nothing is loaded before it is needed; a file is downloaded at most once, a process started at most once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from steersman.lazy import export_lazily

if TYPE_CHECKING:
    from steersman.provider.local.stream import prepare, stream_local
    from steersman.provider.local.weights.cache import DEFAULT_LOCAL_MODEL
    from steersman.provider.local.weights.disk import Progress

__getattr__, __dir__ = export_lazily(
    __name__,
    {
        "stream": "prepare stream_local",
        "weights.cache": "DEFAULT_LOCAL_MODEL",
        "weights.disk": "Progress",
    },
)

__all__ = [
    "DEFAULT_LOCAL_MODEL",
    "Progress",
    "prepare",
    "stream_local",
]
