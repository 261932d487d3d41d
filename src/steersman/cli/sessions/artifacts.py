"""`steersman sessions artifacts`: lists the files that a session keeps, and writes one to a file or stdout."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from steersman.cli.exits import UserError
from steersman.cli.sessions.saved import SavedSession, describe_problems
from steersman.cli.terminal.columns import Canvas, align_table, make_canvas
from steersman.cli.terminal.sanitize import sanitize, sanitize_line
from steersman.cli.terminal.stdout import print_json
from steersman.session.session import Session
from steersman.types.artifacts import Artifact, ArtifactNotFound, Artifacts

_USAGE = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this action; the session is named before them."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="the artifact to write; all are listed if missing")
    parser.add_argument("--version", type=int, metavar="N", help="the version to write; the last one if missing")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file to write; standard output if missing or -"
    )
    parser.add_argument("-f", "--force", action="store_true", help="overwrite an existing file")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")


def show_artifacts(saved: SavedSession, arguments: argparse.Namespace) -> list[str]:
    """Lists the artifacts of the current branch, or writes one of them; returns what is damaged."""
    with Session.open(saved.path, saved.id, write=False) as session:
        kept = session.artifacts
        if arguments.name is None:
            if arguments.output is not None or arguments.version is not None:
                raise UserError("Name the artifact to write: steersman sessions artifacts ID NAME.", code=_USAGE)
            _list(kept, as_json=arguments.json)
        else:
            _write(_load(kept, arguments.name, arguments.version), arguments.output, force=arguments.force)
        return describe_problems(session)


def render_artifacts(found: Sequence[Artifact], canvas: Canvas) -> list[str]:
    """The list of artifacts as lines of a table."""
    if not found:
        return ["No artifacts."]
    rows = [[sanitize_line(one.name), str(one.version), f"{one.size:,}", sanitize_line(one.mime_type)] for one in found]
    laid = align_table([["NAME", "VERSION", "BYTES", "TYPE"], *rows], width=canvas.width, right=(1, 2))
    head = canvas.style("".join(laid[0]).rstrip(), "dim")
    return [head, *("".join(row).rstrip() for row in laid[1:])]


def _list(kept: Artifacts, *, as_json: bool) -> None:
    if as_json:
        print_json([msgspec.to_builtins(version) for one in kept.list() for version in kept.versions(one.name)])
        return
    for line in render_artifacts(kept.list(), make_canvas()):
        print(line)


def _load(kept: Artifacts, name: str, version: int | None) -> bytes:
    try:
        return kept.load(name, version)
    except ArtifactNotFound as error:
        raise UserError(sanitize_line(str(error))) from error


def _write(data: bytes, file: Path | None, *, force: bool) -> None:
    if file is None or file == Path("-"):
        _print(data)
        return
    # A file that is there stays, and so does what a link leads to.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | (os.O_TRUNC if force else os.O_EXCL)
    try:
        with os.fdopen(os.open(file, flags, 0o600), "wb") as target:
            target.write(data)
    except FileExistsError as error:
        raise UserError(f"{sanitize_line(str(file))!r} exists already; --force overwrites it.", code=_USAGE) from error
    except OSError as error:
        raise UserError(f"{sanitize_line(str(file))!r} cannot be written: {error.strerror}.") from error


def _print(data: bytes) -> None:
    """Prints a content as it is; on a terminal only text, made safe."""
    if not sys.stdout.isatty():
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        print(sanitize(data.decode()))
    except UnicodeDecodeError as error:
        raise UserError("This artifact is no text; -o FILE writes it to a file.", code=_USAGE) from error
