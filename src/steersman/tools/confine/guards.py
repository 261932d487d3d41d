"""Names that no wall can hold, because nothing or only a link is there: looked at again when a command is over.

What a command put in such a place is set aside under another name, and a link is put back. Loaded by the supervisor
and written like it: nothing of Steersman, and as little else as can be.
"""

from __future__ import annotations

import os

Guard = tuple[str, str | None, str, bool]
"""A path, the text of the link there (`None` where nothing is), where it leads, and whether something is there."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def record_guard(path: str) -> Guard | None:
    """What is to be found again at a path; `None` for a file or a folder, which walls can hold."""
    try:
        text = os.readlink(path)
    except FileNotFoundError:
        text = None
    except OSError:
        return None
    return path, text, os.path.realpath(path), os.path.exists(path)


def restore_guards(guards: list[Guard]) -> list[str]:
    """Put back what changed, once nothing of the command runs any more; what there is to say about it."""
    return [words for each in guards if (words := _restore(*each))]


def _restore(path: str, text: str | None, real: str, there: bool) -> str:
    parent, name = os.path.split(path)
    lost = f"{path!r} is not as it was, and could not be put right: look at it before you use it"
    try:
        folder = os.open(parent, _FOLDER)
    except OSError:
        return lost
    try:
        # Never through a link: that would be to rename the files of somebody else at a command's wish.
        if os.readlink(f"/proc/self/fd/{folder}") != parent:
            return lost
        found = _read_link(folder, name)
        if found == text and (text is None or (os.path.realpath(path), os.path.exists(path)) == (real, there)):
            return ""
        words = f"commands may not make or change {path!r}"
        if found is not None:
            words += f": what was put there is now {_set_aside(folder, name)!r}"
        if text is not None and found != text:
            os.symlink(text, name, dir_fd=folder)
            words += ", and the link is back"
        return words
    except OSError:
        return lost
    finally:
        os.close(folder)


def _read_link(folder: int, name: str) -> str | None:
    """The text of a link, nothing for what is not there, and an empty text for anything else."""
    try:
        return os.readlink(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def _set_aside(folder: int, name: str) -> str:
    aside = f"{name}.refused-{os.urandom(4).hex()}"
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    return aside
