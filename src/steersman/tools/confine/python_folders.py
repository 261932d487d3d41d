"""The Python that this program runs from: what is written there runs outside the sandbox, now or the next time."""

from __future__ import annotations

import os
import site
import sys

from steersman.tools.confine.links import list_links

_PACKAGES = ("site-packages", "dist-packages")
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_LIBRARIES = tuple(dict.fromkeys(("lib", sys.platlibdir)))
# What makes up a Python, where its folder holds a project as well: after `python -m venv .`, the whole project.
_PARTS = (
    "bin",
    "pyvenv.cfg",
    *(f"{folder}/python{_VERSION}" for folder in _LIBRARIES),
    *(f"{folder}/python{_VERSION.replace('.', '')}.zip" for folder in _LIBRARIES),
)


def list_prefixes() -> list[str]:
    """List the folders of the Python that we run from, as it knows them, which may be by links."""
    return list(dict.fromkeys((sys.prefix, sys.base_prefix)))


def list_python_paths(root: str) -> list[str]:
    """List the real paths of the Python that we run from; of one that is the folder `root` itself, its parts."""
    found = dict.fromkeys(map(os.path.realpath, (*list_prefixes(), *_list_package_folders(), *_list_caches(root))))
    parts = [os.path.realpath(os.path.join(root, part)) for part in _PARTS] if root in found else []
    return [*(path for path in found if path != root), *parts]


def list_links_to_python() -> list[str]:
    """List the links by which this Python is found: whatever replaces one of them has replaced Python."""
    inner = [os.path.join(prefix, folder) for prefix in list_prefixes() for folder in _LIBRARIES]
    return list(dict.fromkeys(link for path in (*inner, *_list_package_folders()) for link in list_links(path)))


def _list_caches(root: str) -> list[str]:
    """The folder of compiled modules (PYTHONPYCACHEPREFIX), which Python runs in place of their sources.

    Of one that is the folder `root` itself, those for the modules of our Python.
    """
    if not sys.pycache_prefix:
        return []
    cache = os.path.realpath(sys.pycache_prefix)
    return [cache + prefix for prefix in list_prefixes()] if cache == root else [cache]


def _list_package_folders() -> list[str]:
    """The folders of installed packages, also those of the user beside the Python of the system.

    That of the user may be missing: as soon as it is there, each Python that is started runs what is in it.
    """
    found = [path for path in sys.path if os.path.isabs(path) and os.path.basename(path.rstrip(os.sep)) in _PACKAGES]
    return [*found, site.getusersitepackages()] if site.ENABLE_USER_SITE else found
