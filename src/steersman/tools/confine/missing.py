"""What to say about a path that leads nowhere: where it ends, and what is there with nearly the same name."""

from __future__ import annotations

import os
from itertools import islice
from typing import NoReturn

from steersman.tools.confine.beneath import Place
from steersman.tools.confine.refusals import MissingPath

_MOST_NAMES = 5_000


def missing(place: Place, path: str) -> NoReturn:
    """Raise `MissingPath` for a place where nothing is."""
    # Only a mistake pays for this import.
    from difflib import get_close_matches

    name = place.rest[0]
    where = "/".join(place.names)
    text = f"{path!r} does not exist."
    if len(place.rest) > 1:
        text += f" There is no {name!r} in {where or '.'!r}."
    names = _names(place.folder)
    by_case = {known.casefold(): known for known in names}
    near = [by_case[known] for known in get_close_matches(name.casefold(), by_case, 3)]
    if near:
        text += f" Similar names in {where or '.'!r}: {', '.join(map(repr, near))}."
    raise MissingPath(text)


def _names(folder: int) -> list[str]:
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return []
    try:
        with os.scandir(descriptor) as entries:
            return [entry.name for entry in islice(entries, _MOST_NAMES)]
    except OSError:
        return []
    finally:
        os.close(descriptor)
