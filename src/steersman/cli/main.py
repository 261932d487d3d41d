"""The entry point: from the arguments to the exit code. Errors are reported in one line, without a traceback.

`--verbose` adds the traceback. Keys are redacted in both.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import IO, Any, cast

from steersman.cli.arguments import Options, parse
from steersman.cli.terminal.descriptors import (
    STDERR,
    count_columns,
    exit_on_signals,
    exit_silently_on_signals,
    has_stdout,
    open_missing_descriptors,
    record_signals,
    stop_recording_signals,
)

_ERROR, _USAGE, _INTERRUPTED, _PIPE = 1, 2, 130, 141
_ALLOCATIONS = 20_000
"""New objects between two collections of garbage: what a start imports stays, so looking at it again takes time."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with these arguments, or with those of the process, and returns its exit code."""
    if argv is not None:
        return _run_command(argv)
    # Called as a program: file descriptors, signals and the garbage collector are ours to set up.
    gc.set_threshold(_ALLOCATIONS)
    open_missing_descriptors()
    exit_on_signals()
    codes: list[int] = []
    atexit.register(_skip_shutdown, codes)
    try:
        codes.append(_run_command(sys.argv[1:]))
    finally:
        exit_silently_on_signals()
    return codes[0]


def _skip_shutdown(codes: Sequence[int]) -> None:
    """Ends the process where threads of Temporal's client may crash Python's own shutdown.

    Registered first, so that it is the last exit function to run.
    """
    if codes and "temporalio" in sys.modules:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(codes[0])


def _run_command(words: Sequence[str]) -> int:
    """Runs the command and turns every outcome into an exit code."""
    _replace_unencodable()
    try:
        return _flush_stdout(_parse_and_run(words))
    except BrokenPipeError:
        _silence_last_flush(sys.stdout, sys.stderr)
        return _PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as error:  # noqa: BLE001  # the last place that can report an error without a traceback
        return _report_error(error, verbose="--verbose" in words)


def _parse_and_run(words: Sequence[str]) -> int:
    try:
        options = parse(words)
    except SystemExit as done:  # argparse has printed its message already
        return done.code if isinstance(done.code, int) else _USAGE
    if options.command == "run":
        record_signals()
    import asyncio

    from steersman.cli.terminal.stderr import capture_logs

    with capture_logs(verbose=options.verbose, server=options.command in ("serve", "worker")), _export_runs():
        return asyncio.run(_dispatch(options))


def _export_runs() -> AbstractContextManager[None]:
    """Exports runs to OpenTelemetry; without a variable for it nothing is imported."""
    if not any(name.startswith("OTEL_") for name in os.environ):
        return nullcontext()
    from steersman.cli.setup.export import export_runs

    return export_runs()


async def _dispatch(options: Options) -> int:
    if not has_stdout():
        from steersman.cli.exits import UserError

        raise UserError("Standard output is closed, so the answer cannot be written.", code=_ERROR)
    match options.command:
        case "run":
            from steersman.cli.run.once import run_once

            try:
                return await run_once(options)
            finally:
                stop_recording_signals()
        case "chat":
            from steersman.cli.chat.start import run_chat

            return await run_chat(options)
        case "sessions":
            from steersman.cli.sessions import subcommand as sessions

            return await sessions.run(options)
        case "models":
            from steersman.cli.setup import models

            return await models.run(options)
        case "serve" | "worker" | "acp" | "mcp":
            from importlib import import_module

            return await import_module(f"steersman.cli.serving.{options.command}").run(options)
        case "eval":
            from steersman.cli.evals import eval_command

            return await eval_command.run(options)
        case "doctor":
            from steersman.cli.setup import doctor

            return await doctor.run(options)
        case "init":
            from steersman.cli.setup import init

            return await init.run(options)


def _report_error(error: Exception, *, verbose: bool) -> int:
    """Prints the error to stderr and returns its exit code."""
    from steersman.cli.exits import UserError, describe_error
    from steersman.cli.redact import redact_keys
    from steersman.cli.terminal.columns import wrap
    from steersman.cli.terminal.sanitize import sanitize

    lines = wrap(f"steersman: {describe_error(error)}", count_columns(STDERR))
    if verbose:
        from traceback import format_exception

        lines.append(sanitize(redact_keys("".join(format_exception(error)))).rstrip("\n"))
    elif not _is_expected(error):
        lines.append("steersman: This is a bug. Run the same command with --verbose to see where it happened.")
    try:
        if sys.stderr is not None:  # if closed, `print` would write to standard output instead
            print(*lines, sep="\n", file=sys.stderr, flush=True)
    except OSError:  # stderr has no reader; the exit code still says it
        _silence_last_flush(sys.stdout, sys.stderr)
    return error.code if isinstance(error, UserError) else _ERROR


def _is_expected(error: Exception) -> bool:
    """Whether the error's own text says what to do; every other error is a bug."""
    from steersman.cli.exits import UserError
    from steersman.types.errors import SteersmanError

    return isinstance(error, UserError | SteersmanError | OSError | NotImplementedError)


def _replace_unencodable() -> None:
    """Makes stdout and stderr print `?` for characters their encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            cast(Any, stream).reconfigure(errors="replace")


def _flush_stdout(code: int) -> int:
    """Flushes standard output; a failure there turns success into an error."""
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except OSError:
        _silence_last_flush(sys.stdout)
        if not code:
            raise
    return code


def _silence_last_flush(*streams: IO[str] | None) -> None:
    """Points the streams at /dev/null, so that Python's last flush reports no broken pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        try:
            os.dup2(nowhere, cast(IO[str], stream).fileno())
        except (AttributeError, OSError, ValueError):  # closed, or not a file: nothing will be flushed
            continue
