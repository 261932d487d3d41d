"""Follows a path step by step: the folders that it leads through, and the links by which it does."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Iterable, Iterator

MAX_STEPS = 1_000
"""How far a link is followed that may lead to a temporary folder: by others, it may be a way of 80,000 names."""

_MAX_LINKS = 40


def leads_through(path: str, folders: Iterable[str]) -> bool:
    """Whether a path leads through one of these folders, which are real paths, or through a link in one of them."""
    roots = frozenset(folders)
    try:
        return any(step in roots for step in list_steps(path))
    except OSError:
        return True


def list_steps(path: str) -> Iterator[str]:
    """List the real paths that a path leads through, also by links; `OSError` where it leads in a circle."""
    return (step for step, is_link, _ in _follow(path) if not is_link)


def list_links(path: str) -> list[str]:
    """List the links that a path leads through, each with the real path of its folder; as far as they lead."""
    found: list[str] = []
    try:
        found.extend(step for step, is_link, _ in _follow(path) if is_link)
    except OSError:
        pass  # in a circle: the links are known by then
    return found


def find_link_into(path: str, folders: Iterable[str], *, beneath: str) -> tuple[str | None, bool]:
    """Find the link beneath a folder whose text leads a path into one of these folders; all of them are real paths.

    Where that is a text elsewhere, it is the last link beneath the folder that leads there. It is the path itself where
    that leads further than `MAX_STEPS`; whether it does so comes second.
    """
    roots = tuple(folders)
    try:
        for number, (step, is_link, link) in enumerate(_follow(path, beneath)):
            if number > MAX_STEPS:
                return path, True
            if link and not is_link and any(step == root or step.startswith(root + os.sep) for root in roots):
                return link, False
    except OSError:
        pass  # in a circle, which leads nowhere
    return None, False


def _follow(path: str, beneath: str = "") -> Iterator[tuple[str, bool, str]]:
    """Yield each step with the real path of its folder, and whether it is a link, whose target comes next.

    And the link beneath a folder by which it was named, if any.
    """
    here, names, links = os.sep, deque((name, "") for name in path.split(os.sep)), 0
    while names:
        name, by = names.popleft()
        step = os.path.dirname(here) if name == os.pardir else os.path.join(here, name).rstrip(os.sep) or os.sep
        try:
            target = os.readlink(step) if name not in ("", os.curdir, os.pardir) else None
        except OSError:
            target = None  # no link, or nothing
        if target is None:
            here = here if name == os.curdir else step
            yield here, False, by
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        by = step if step.startswith(beneath + os.sep) else by
        names.extendleft((word, by) for word in reversed(target.split(os.sep)))
        here = os.sep if os.path.isabs(target) else here
        yield step, True, by
