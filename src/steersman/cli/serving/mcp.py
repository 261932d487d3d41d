"""`steersman mcp`: the agent of this folder as a tool of another program, over stdin and stdout."""

from __future__ import annotations

import argparse

from steersman.cli.arguments import Options
from steersman.cli.serving.folder import add_approval_timeout, open_folder_store, open_stderr, start_served_agent
from steersman.cli.serving.stdio import take_stdio
from steersman.cli.setup.settings import get_current_folder
from steersman.server.fronts.json_rpc import INVALID_REQUEST, encode_line
from steersman.server.fronts.mcp.front import McpFront
from steersman.server.sessions import Sessions


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of this command."""
    add_approval_timeout(parser)


async def run(options: Options) -> int:
    """Serves a program until it hangs up; returns the exit code."""
    arguments = options.arguments
    assert arguments is not None
    async with (
        open_stderr(options) as stderr,
        take_stdio() as stdio,
        start_served_agent(options, stderr) as started,
    ):
        store = open_folder_store(options, get_current_folder())
        sessions = Sessions(started.make_agent, store, approval_timeout=arguments.approval_timeout)
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
