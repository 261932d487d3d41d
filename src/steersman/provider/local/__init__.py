"""A model inside: it runs in a child process of ours, and its bytes are used only if they are the ones we know.

Nothing is loaded before it is asked for: a file is fetched at most once, a process started at most once.
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
