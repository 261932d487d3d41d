"""Lazy exports: a package offers the public names of its modules and imports each module on first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def export_lazily(
    package: str,
    modules: Mapping[str, str],
    *,
    explain: Callable[[ModuleNotFoundError], Exception | None] | None = None,
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package whose `modules` hold its public names, separated by spaces.

    A module is named relative to the package, or by its full name beginning with `steersman.`.
    `explain` may turn the failed import of an optional dependency into an error that names the extra to install.
    """
    module_of: dict[str, str] = {}
    for module, names in modules.items():
        path = module if module.startswith("steersman.") else f"{package}.{module}"
        module_of.update(dict.fromkeys(names.split(), path))

    def load(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module_of[name]), name)
        except ModuleNotFoundError as error:
            explained = None if explain is None else explain(error)
            if explained is None:
                raise
            raise explained from error
        setattr(import_module(package), name, value)  # the next access does not come here
        return value

    def list_names() -> list[str]:
        return sorted(module_of)

    return load, list_names
