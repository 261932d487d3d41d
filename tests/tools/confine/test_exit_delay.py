"""A call that was given up: what its command made is set aside when the command has ended, and before the program."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.tools.builtin.shells import run, supervisors, until
from tests.tools.confine.rooms import Room, walls_of
from tests.tools.confine.test_sandbox_git import named

from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.sandbox import Confinement

pytestmark = pytest.mark.real_time
# Makes a repository again as soon as it is gone, and does not want to end.
MAKER = "trap '' TERM; mkdir sub; while :; do mkdir -p sub/.git; echo x >> sub/.git/HEAD; done"
PROGRAM = f"""
import asyncio, os, signal, sys
from pathlib import Path
from tests.tools.builtin.shells import supervisors
from steersman import Agent
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import bash_tool

async def main(root, sandbox):
    script = ScriptedModel(answer(call("bash", command={MAKER!r})))
    agent = Agent(script.model, tools=[bash_tool(root, sandbox=sandbox)])
    work = asyncio.create_task(agent.run("Go."))
    while not (root / "sub/.git/HEAD").exists():
        await asyncio.sleep(0.01)
    (supervisor,) = supervisors()
    os.kill(int(supervisor), signal.SIGSTOP)
    agent.abort()
    await work
    print(supervisor, flush=True)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


async def test_what_a_command_makes_after_its_call_was_given_up_is_set_aside(room: Room, whole: Confinement) -> None:
    before = set(supervisors())
    work = asyncio.create_task(run(bash_tool(room.root, sandbox=named(whole)), MAKER))
    head = room.root / "sub/.git/HEAD"
    await until(head.exists)
    (supervisor,) = set(supervisors()) - before
    os.kill(int(supervisor), signal.SIGSTOP)  # as slow as on a machine without time for it
    try:
        for _ in range(2):  # a run cancels a call again when it gives it up
            work.cancel()
            await asyncio.wait((work,), timeout=0.05)
        with pytest.raises(asyncio.CancelledError):
            await work
        assert head.exists()
    finally:
        os.kill(int(supervisor), signal.SIGCONT)
    await until(lambda: not Path(f"/proc/{supervisor}").exists())
    await until(lambda: [*room.root.glob("sub/.git.refused-*")])
    assert not (room.root / "sub/.git").exists()


def test_a_program_ends_after_what_its_commands_made_is_set_aside(room: Room) -> None:
    walls = walls_of("landlock")
    line = [sys.executable, "-c", PROGRAM, room.root, named(walls)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        supervisor = int(program.stdout.readline())
        os.kill(supervisor, signal.SIGCONT)  # the run is over, and the program wants to end
    assert program.returncode == 0
    assert [*room.root.glob("sub/.git.refused-*")]
    assert not (room.root / "sub/.git").exists()
