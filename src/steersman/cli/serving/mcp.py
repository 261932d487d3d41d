"""`steersman mcp`: the agent of this folder as a tool of another program, over stdin and stdout."""

from __future__ import annotations

import argparse

from steersman.cli.arguments import Options
from steersman.cli.serving.serve import close_at_end
from steersman.cli.serving.stdio import take_stdio
from steersman.cli.setup.settings import find_session_file, get_current_folder, make_private_folder
from steersman.cli.setup.startup import start_agent
from steersman.cli.terminal.stderr import StderrMessages
from steersman.server.fronts.json_rpc import INVALID_REQUEST, encode_line
from steersman.server.fronts.mcp.front import McpFront
from steersman.server.sessions import Sessions
from steersman.session.opening import open_store


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    parser.add_argument(
        "--approval-timeout", type=float, metavar="S", help="deny a question that has no answer after so many seconds"
    )


async def run(options: Options) -> int:
    """Serves a program until it hangs up; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    stderr = StderrMessages(verbose=options.verbose)
    async with (
        close_at_end(stderr),
        take_stdio() as stdio,
        start_agent(
            options,
            approve=None,
            notify=stderr.notify,
            progress=stderr.show_progress,
            chosen=lambda choice: stderr.notify(choice.why),
            keep_session=False,
        ) as started,
    ):
        path = find_session_file(options.session_dir, get_current_folder())
        make_private_folder(path.parent)
        sessions = Sessions(started.agent, open_store(path), approval_timeout=arguments.approval_timeout)
        front = McpFront(
            sessions,
            lambda message: stdio.output.write(encode_line(message)),
            wait_for_space=stdio.output.wait_for_space,
        )

        def receive(line: bytes | None) -> None:
            if line is None:
                front.peer.refuse(INVALID_REQUEST, "The message is too long.")
            elif line.strip():
                front.peer.receive(line)

        try:
            stdio.read_lines(receive)
            await stdio.ended.wait()
        finally:
            await front.finish()
            await sessions.close()
    return 0
