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
        # Modules of these names that were in a workspace before any tool could write there: they are the user's own.
        self.own: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or fullname not in self.names:
            return None
        spec = PathFinder.find_spec(fullname, [entry for entry in sys.path if not self.can_change(entry)], target)
        if spec is None:
            self._refuse_new(fullname)
        elif spec.loader is None and spec.submodule_search_locations is not None:
            # A namespace package looks for its parts again when `sys.path` changes, and would find those of workspaces.
            spec.submodule_search_locations = [*spec.submodule_search_locations]
        return spec

    def _refuse_new(self, name: str) -> None:
        """Raise for a package that is not installed, if a module of that name has come to be in a workspace."""
        if name not in self.own and PathFinder.find_spec(name, [*filter(self.can_change, sys.path)]) is not None:
            raise ModuleNotFoundError(
                f"No module named {name!r} outside the workspace. The one there was written by tools.", name=name
            )

    def can_change(self, entry: str) -> bool:
        """Whether a folder of `sys.path` is in a workspace, and not part of the Python that we run from."""
        real = os.path.realpath(entry or os.curdir)
        own = (os.path.realpath(sys.prefix), os.path.realpath(sys.base_prefix))
        return any(_is_in(real, root) for root in self.workspaces) and not any(_is_in(real, folder) for folder in own)

    def add_workspace(self, workspace: str) -> None:
        """Add a workspace, and note the modules that it holds now: those are the user's own.

        Not again those of other workspaces, in which tools may have written meanwhile.
        """
        fixed = [entry for entry in sys.path if not self.can_change(entry)]
        self.workspaces.add(workspace)
        for entry in filter(self.can_change, fixed):
            try:
                self.own.update(name.partition(".")[0] for name in os.listdir(entry or os.curdir))
            except OSError:
                continue  # nothing can be imported from there


_finder = _TrustedFirst()


def keep_imports_out(workspace: str) -> None:
    """Import no module of Python or of our packages from a workspace, which is a real path, from now on."""
    if not any(_is_in(workspace, root) for root in _finder.workspaces):
        _finder.add_workspace(workspace)
    if _finder not in sys.meta_path and any(map(_finder.can_change, sys.path)):
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, _finder)


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
