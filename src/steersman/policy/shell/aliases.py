"""Commands of docker and podman that have several names, such as `docker rm` and `docker container rm`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

_PROGRAMS = frozenset(("docker", "podman"))
_CONTAINER = """
    attach commit cp create diff exec export inspect kill logs pause port rename restart run start stats stop top
    unpause update wait"""
_IMAGE = "history import load pull push save tag"
_GROUPS: tuple[tuple[str, ...], ...] = (
    *((name, f"container {name}") for name in _CONTAINER.split()),
    *((name, f"image {name}") for name in _IMAGE.split()),
    ("rm", "container rm", "container remove"),
    ("ps", "container ls", "container list", "container ps"),
    ("rmi", "image rm", "image remove"),
    ("images", "image ls", "image list"),
    ("build", "image build", "builder build", "buildx build", "buildx b"),
    ("volume rm", "volume remove"),
    ("volume ls", "volume list"),
    ("network rm", "network remove"),
    ("network ls", "network list"),
    ("context rm", "context remove"),
    ("service rm", "service remove"),
    ("stack rm", "stack remove", "stack down"),
    ("secret rm", "secret remove"),
    ("config rm", "config remove"),
    ("plugin rm", "plugin remove"),
    ("node rm", "node remove"),
    ("info", "system info"),
    ("events", "system events"),
)
_SAME = {name: group for group in _GROUPS for name in group}


def list_aliases(words: Sequence[str], *, is_open: bool = False) -> Iterator[list[str]]:
    """List the other names of a command, with what follows its subcommand.

    Words that only begin a name, such as `docker container`, are about all of its commands; with `is_open`, the last
    one may be a part of a word.
    """
    if len(words) < 2 or words[0] not in _PROGRAMS:
        return
    for size in (2, 1):
        if len(words) > size and (name := " ".join(words[1 : size + 1])) in _SAME:
            yield from ([words[0], *other.split(), *words[size + 1 :]] for other in _SAME[name] if other != name)
            if not is_open:
                return
            break
    begin = " ".join(words[1:]) + ("" if is_open else " ")
    meant = dict.fromkeys(other for name in _SAME if name.startswith(begin) for other in _SAME[name])
    yield from ([words[0], *other.split()] for other in meant if not other.startswith(begin))
