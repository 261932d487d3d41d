"""Keeps this program from importing a module that a model wrote in place of one of Python or of a package that we use.

The folder of a script is the first on `sys.path`, and it often is the workspace as well. Some modules are imported when
they are first needed. If a command could write a `resource.py` there, that file would then run outside the sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from steersman.safe_start import list_needed_modules


class _TrustedFirst(MetaPathFinder):
    """Finds modules of Python and of our packages outside the workspaces; leaves all others to the usual finders."""

    def __init__(self) -> None:
        self.names = list_needed_modules()
        self.workspaces: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or fullname not in self.names:
            return None
        return PathFinder.find_spec(fullname, [entry for entry in sys.path if not self.can_change(entry)], target)

    def can_change(self, entry: str) -> bool:
        """Whether a folder of `sys.path` is in a workspace, and not part of the Python that we run from."""
        real = os.path.realpath(entry or os.curdir)
        own = (os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
        return any(_is_in(real, root) for root in self.workspaces) and not any(_is_in(real, folder) for folder in own)


_finder = _TrustedFirst()


def keep_imports_out(workspace: str) -> None:
    """Import no module of Python or of our packages from a workspace, which is a real path, from now on."""
    _finder.workspaces.add(workspace)
    if _finder not in sys.meta_path and any(map(_finder.can_change, sys.path)):
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, _finder)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
