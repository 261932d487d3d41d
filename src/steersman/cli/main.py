"""The command from its first argument to its exit code. Whatever goes wrong is told in one line, never by a traceback.

A traceback is shown to whoever asks for it with `--verbose`; keys are taken out of both.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO, Any, cast

from steersman.cli.arguments import Options, parse
from steersman.cli.terminal.descriptors import (
    end_quietly,
    has_stdout,
    hold_descriptors,
    leave_on_signals,
    note_signals,
    stop_noting,
)

_ERROR, _USAGE, _INTERRUPTED, _PIPE = 1, 2, 130, 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, or with the process's own; its exit code."""
    if argv is not None:
        return _coded(argv)
    # The process is ours, and so are its descriptors and its signals.
    hold_descriptors()
    leave_on_signals()
    try:
        return _coded(sys.argv[1:])
    finally:
        end_quietly()


def _coded(words: Sequence[str]) -> int:
    """Run the command; whatever happens, an exit code comes of it."""
    _show_what_can_be_shown()
    try:
        return _flushed(_dispatched(words))
    except BrokenPipeError:
        _leave_quietly(sys.stdout, sys.stderr)
        return _PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last place where an error can still become a sentence
        return _told(error, verbose="--verbose" in words)


def _dispatched(words: Sequence[str]) -> int:
    try:
        options = parse(words)
    except SystemExit as done:  # of argparse, which has said what there is to say
        return done.code if isinstance(done.code, int) else _USAGE
    if options.command == "run":
        note_signals()
    import asyncio

    from steersman.cli.terminal.stderr import tamed_logs

    with tamed_logs(verbose=options.verbose):
        return asyncio.run(_run(options))


async def _run(options: Options) -> int:
    if not has_stdout():
        from steersman.cli.exits import UserError

        raise UserError("Standard output is closed, so there is nowhere to write an answer to.", code=_ERROR)
    match options.command:
        case "run":
            from steersman.cli.run.once import once

            try:
                return await once(options)
            finally:
                stop_noting()
        case "chat":
            from steersman.cli.chat.start import chat

            return await chat(options)
        case "sessions":
            from steersman.cli.sessions import commands as sessions

            return await sessions.run(options)
        case "models":
            from steersman.cli.setup import models

            return await models.run(options)
        case "doctor":
            from steersman.cli.setup import doctor

            return await doctor.run(options)


def _told(error: Exception, *, verbose: bool) -> int:
    """Say what happened, and give the exit code for it."""
    from steersman.cli.exits import UserError, line_of, without_keys
    from steersman.cli.terminal.sanitize import safe

    lines = [f"steersman: {line_of(error)}"]
    if verbose:
        from traceback import format_exception

        lines.append(safe(without_keys("".join(format_exception(error)))).rstrip("\n"))
    elif not _expected(error):
        lines.append("steersman: This should not happen. With --verbose the same command shows where it did.")
    try:
        if sys.stderr is not None:  # closed, and `print` would take standard output instead
            print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:  # nobody listens any more; the exit code still tells
        _leave_quietly(sys.stdout, sys.stderr)
    return error.code if isinstance(error, UserError) else _ERROR


def _expected(error: Exception) -> bool:
    """Whether its own words say what to do; anything else is a mistake of ours."""
    from steersman.cli.exits import UserError
    from steersman.types.errors import SteersmanError

    return isinstance(error, UserError | SteersmanError | OSError | NotImplementedError)


def _show_what_can_be_shown() -> None:
    """A terminal of another encoding gets a question mark for what it has no sign for, instead of an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            cast(Any, stream).reconfigure(errors="replace")


def _flushed(code: int) -> int:
    """Write the last of standard output; the exit code of a command that ended well depends on it."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError:
        _leave_quietly(sys.stdout)
        if not code:
            raise
    return code


def _leave_quietly(*streams: IO[str] | None) -> None:
    """Let Python's own last flush go nowhere, so that it says nothing about a reader that has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            os.dup2(nowhere, cast(IO[str], stream).fileno())
        except (AttributeError, OSError, ValueError):  # closed, or no file at all: nothing will be flushed
            continue
