"""A model inside: it runs in a child process of ours, and its bytes are used only if they are the ones we know.

Nothing is loaded before it is asked for: a file is fetched at most once, a process started at most once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from steersman.provider.local.manifest import DEFAULT
    from steersman.provider.local.progress import Progress
    from steersman.provider.local.stream import prepare, stream_local

# Not the function `weights`: a package's attribute of that name is its module, `steersman.provider.local.weights`.
__all__ = ["DEFAULT", "Progress", "prepare", "stream_local"]

_HOME_OF = {"DEFAULT": "manifest", "Progress": "progress", "prepare": "stream", "stream_local": "stream"}


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__]
