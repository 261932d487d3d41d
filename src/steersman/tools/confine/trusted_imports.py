"""Keeps this program from running a module that a model wrote because code outside the workspace imports its name.

The folder of a script is the first on `sys.path`, and it often is the workspace as well. Many modules are imported when
they are first needed, and many packages try to import others that need not be there. If a command could write a
`resource.py` or an `org.py` there, that file would then run outside the sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from itertools import islice
from types import FrameType, ModuleType

from steersman.safe_start import list_needed_modules, resolve_prefix
from steersman.tools.confine.links import list_steps
from steersman.tools.confine.python_folders import list_python_paths
from steersman.types.guards import is_instance

_IMPORTLIB = frozenset(
    (
        *("importlib", "importlib._bootstrap", "importlib._bootstrap_external", "importlib.util", "_frozen_importlib"),
        __name__,
    )
)
_METADATA = frozenset(("importlib.metadata", "importlib_metadata"))
_IMPORT = "_find_and_load_unlocked"  # the function of importlib that an import goes through, and `util.find_spec` not
_SUFFIXES = tuple(all_suffixes())
# How far a folder without an `__init__.py` is searched for modules, which make it a package; and all of them together.
_MOST_FOLDERS, _MOST_NAMES, _MOST_IN_ALL = 20, 200, 2_000


class _TrustedFirst(MetaPathFinder):
    """Finds modules outside the workspaces first; in one, only the user's own and what those import."""

    def __init__(self) -> None:
        self.names = list_needed_modules()
        # Each with the parts of our Python that are in it, which tools do not change.
        self.workspaces: dict[str, list[str]] = {}
        # The modules and packages that were in a workspace before any tool could write there: they are the user's own.
        self.own: set[str] = set()
        self._known: dict[str, bool] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top = fullname.partition(".")[0]
        if top in self.own and top not in self.names:
            self._check_plugin(fullname)
            return None
        entries = list(sys.path if path is None else path)
        fixed = [_unlink(entry) for entry in entries if not self.can_change(entry)]
        spec, is_whole = self._find_outside(fullname, fixed, target)
        is_namespace = spec is not None and spec.loader is None
        if is_whole and fixed == entries:
            return None if is_namespace else spec
        if top in self.own and spec is None:
            return None
        importer, is_import = _find_importer()
        if top not in self.names and (self._is_own(importer) or (path is not None and self._is_loaded(top))):
            return None if is_namespace else spec
        if spec is None:
            return self._refuse(fullname, path, target, is_import=is_import)
        if is_namespace and spec.submodule_search_locations is not None:
            # A namespace package looks for its parts again when `sys.path` changes, and would find those of workspaces.
            spec.submodule_search_locations = [*spec.submodule_search_locations]
        return spec

    def _find_outside(
        self, fullname: str, entries: list[str], target: ModuleType | None
    ) -> tuple[ModuleSpec | None, bool]:
        """Find a module in folders that are in no workspace, and whether nothing was left out.

        A workspace may be in one of these folders, and then it is a package as soon as it has an `__init__.py`.
        """
        spec = PathFinder.find_spec(fullname, entries, target)
        if spec is None or spec.origin is None or not self._is_inside(spec.origin):
            return spec, True
        name = fullname.rpartition(".")[2]
        fixed = [entry for entry in entries if not self.can_change(os.path.join(entry, name))]
        return PathFinder.find_spec(fullname, fixed, target), False

    def _refuse(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None, *, is_import: bool
    ) -> ModuleSpec | None:
        """Find a module that is not on the path with the finders that come later, or raise `ModuleNotFoundError`.

        An import does not get to the usual search, whatever is there now: a command may write the module meanwhile.
        """
        is_there = PathFinder.find_spec(fullname, path, target) is not None
        if not is_there and not is_import:
            return None
        for finder in sys.meta_path[sys.meta_path.index(PathFinder) + 1 :] if PathFinder in sys.meta_path else ():
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                return spec
        more = " outside the workspace. The one there was not there when the tools were made." if is_there else ""
        raise ModuleNotFoundError(f"No module named {fullname!r}{more}", name=fullname)

    def _check_plugin(self, fullname: str) -> None:
        """Raise where code outside loads a plugin that the metadata of a package in a workspace names.

        Tools can write such metadata (`x.dist-info`), and with it choose what runs: also what no code of the user does.
        """
        frame, _ = _find_importer()
        entry_point = None
        while frame is not None and frame.f_globals.get("__name__") in _METADATA:
            entry_point = frame.f_locals.get("self") if entry_point is None else entry_point
            frame = frame.f_back
        package = getattr(entry_point, "dist", None)
        if package is not None and self.can_change(str(package.locate_file(""))) and not self._is_own(frame):
            raise ModuleNotFoundError(
                f"{fullname!r} is named as a plugin by a package in the workspace, and only code of the workspace may "
                "load it.",
                name=fullname,
            )

    def _is_own(self, importer: FrameType | None) -> bool:
        """Whether the code that imports is in a workspace or was typed, and is of no package that we use."""
        if importer is None:
            return False
        name, file = importer.f_globals.get("__name__"), importer.f_globals.get("__file__")
        if file is None:
            return name == "__main__"
        is_ours = isinstance(name, str) and name != "__main__" and name.partition(".")[0] in self.names
        return not is_ours and self._is_inside(file)

    def _is_loaded(self, top: str) -> bool:
        """Whether a package was loaded from a workspace: what is in it is the user's own, however it was found."""
        return self._is_inside(getattr(sys.modules.get(top), "__file__", None))

    def _is_inside(self, file: object) -> bool:
        return isinstance(file, str) and self.can_change(os.path.dirname(file))

    def can_change(self, entry: object) -> bool:
        """Whether a folder of `sys.path` is in a workspace, and not part of the Python that we run from."""
        if not isinstance(entry, str):
            return False  # such as a `Path`, which Python skips
        if (known := self._known.get(entry)) is not None:
            return known
        try:
            whole = os.path.join(os.getcwd(), entry) if not os.path.isabs(entry) else entry
        except OSError:
            return True  # the working folder is gone, and nothing can be imported from there
        found = self._leads_inside(resolve_prefix(whole))
        if whole == entry:
            self._known[entry] = found
        return found

    def _leads_inside(self, path: str) -> bool:
        """Whether a path leads through a workspace, and not to a part of our Python in it."""
        real = os.path.realpath(path)
        try:
            passed = [step for step in list_steps(path) if step in self.workspaces]
        except OSError:
            return True  # in a circle
        return any(not any(_is_in(real, part) for part in self.workspaces[workspace]) for workspace in passed)

    def add_workspace(self, workspace: str) -> None:
        """Add a workspace, and note the modules that it holds now: those are the user's own.

        Not again those of other workspaces, in which tools may have written meanwhile.
        """
        fixed = [entry for entry in sys.path if not self.can_change(entry)]
        parts = [path for path in list_python_paths(workspace) if path != workspace and _is_in(path, workspace)]
        self.workspaces[workspace] = parts
        self._known.clear()
        for entry in fixed:
            folder = os.path.realpath(entry or os.curdir)
            if self.can_change(entry):
                self.own.update(_list_modules(folder))
            elif _is_in(workspace, folder) and _holds_modules(workspace, iter(range(_MOST_FOLDERS))):
                self.own.add(os.path.relpath(workspace, folder).partition(os.sep)[0])


_finder = _TrustedFirst()


def keep_imports_out(workspace: str) -> None:
    """Import no module that is written in a workspace, which is a real path, from now on; but see `_is_own`."""
    if not any(_is_in(workspace, root) for root in _finder.workspaces):
        _finder.add_workspace(workspace)
    if _finder not in sys.meta_path:
        place = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
        sys.meta_path.insert(place, _finder)


def _find_importer() -> tuple[FrameType | None, bool]:
    """Find the code that imports a module, and whether it does or only asks where the module is."""
    frame: FrameType | None = sys._getframe(2)  # pyright: ignore[reportPrivateUsage]  # nothing else knows the importer
    is_import = False
    while frame is not None and frame.f_globals.get("__name__") in _IMPORTLIB:
        is_import = is_import or frame.f_code.co_name == _IMPORT
        frame = frame.f_back
    return frame, is_import


def _list_modules(folder: str) -> Iterator[str]:
    """List the names under which modules and packages in a folder can be imported."""
    looks = iter(range(_MOST_IN_ALL))
    for entry in _list_entries(folder):
        if (name := _strip_suffix(entry.name)) is not None:
            yield name
        elif "." not in entry.name and _holds_modules(entry.path, looks):
            yield entry.name


def _strip_suffix(name: str) -> str | None:
    """Strip the ending of the name of a module; `None` for any other name."""
    stems = [name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)]
    return next((stem for stem in stems if stem and "." not in stem), None)


def _holds_modules(folder: str, looks: Iterator[int]) -> bool:
    """Whether there is a module in a folder or in the nearest folders in it, as long as there are looks left."""
    if os.path.exists(os.path.join(folder, "__init__.py")):
        return True
    waiting = [folder]
    for place, _ in zip(islice(waiting, _MOST_FOLDERS), looks, strict=False):  # it grows meanwhile
        for entry in islice(_list_entries(place), _MOST_NAMES):
            if _strip_suffix(entry.name) is not None:
                return True
            if "." not in entry.name and entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    return False


def _list_entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return  # a file, or nothing can be imported from there


def _unlink(entry: str) -> str:
    return resolve_prefix(entry) if is_instance(entry, str) else entry  # such as a `Path`, which Python skips


def _is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)
