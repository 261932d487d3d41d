"""Whatever a command starts and however it hides it: when the call is over, nothing of it runs or is a zombie."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.timing import ample
from tests.tools.builtin.shells import gone, happens, marked, new_mark, run, text, until, zombies

from steersman import Agent, Tool
from steersman.testing import ScriptedModel, answer, call
from steersman.tools.builtin.bash_tool import bash_tool
from steersman.tools.confine.sandbox import Sandbox, confinement
from steersman.types.events import ToolExecutionUpdate
from steersman.types.messages import ToolResultMessage

pytestmark = pytest.mark.real_time
NOTHING_LEFT: tuple[list[str], list[str]] = ([], [])
MakeBash = Callable[..., Tool]

# Forks, lets the parent die and goes on in the child, for ever: a new process id every millisecond.
HOPPER = "import os,time\nwhile True:\n    if os.fork(): os._exit(0)\n    os.setsid(); time.sleep(0.001)"
# The same as fast as the kernel forks, several at a time, which start each other again when they are killed.
HYDRA = r"""
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static unsigned long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ul + t.tv_nsec;
}
int main(void) {
    volatile unsigned long *beats = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned long time, old, end = now() + 10000000000ul;
    unsigned me = 0, other, chance = 1, count = 0;
    signal(SIGTERM, SIG_IGN);
    signal(SIGCHLD, SIG_IGN);
    for (int number = 0; number < 3; number++) close(number);
    if (NESTS) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    while ((time = now()) < end) {
        beats[me] = time;
        chance = chance * 1103515245 + 12345 + time;
        old = beats[other = (chance >> 16) % HEADS];
        if (time - old > 30000000 && __sync_bool_compare_and_swap(&beats[other], old, time))
            if (!syscall(SYS_fork)) me = other, setsid();
        if (++count % 64 == 0 && !me) close(open("alive", O_CREAT | O_WRONLY, 0600));
        if (syscall(SYS_fork) > 0) syscall(SYS_exit_group, 0);
    }
}
"""
# A grandchild in a session of its own.
FAMILY = (
    "import subprocess,sys,time; "
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(1000)'], start_new_session=True); "
    "print('ready', flush=True); time.sleep(1000)"
)
# `MARK` is a number that no other test uses; where a program clears its environment, it stands in its arguments.
STUBBORN = {
    "plain": "echo ready; sleep 1000",
    "grandchildren": f'python3 -c "{FAMILY}"',
    "background and wait": "sleep 1000.MARK & sleep 1001 & echo ready; wait",
    "setsid": "setsid sleep 1000 & echo ready; wait; sleep 1001",
    "no environment, own session, no parent": "(env -i setsid -f sleep 1000.MARK); echo ready; sleep 1001",
    "ignores SIGTERM": "trap '' TERM; echo ready; while :; do sleep 1; done",
    "child ignores SIGTERM": "(trap '' TERM; sleep 1000; sleep 1001) & echo ready; wait",
    "stopped itself": "echo ready; kill -STOP $$; sleep 1000",
    "stopped child": "sleep 1000 & kill -STOP $!; echo ready; wait",
    "holds the pipe": "(sleep 1000; echo never) & echo ready; sleep 1001",
    "floods": "echo ready; yes",
    "floods standard error": "echo ready; yes >&2",
    "waits for input": "echo ready; sleep 1000 | cat",
    "keeps forking": f"echo ready; python3 -c '{HOPPER}'; sleep 1000",
}


@pytest.fixture(params=["off", "auto"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """None, and the one of this machine."""
    if confinement(request.param).kind == "none":
        pytest.skip(confinement(request.param).reason)
    return request.param


@pytest.fixture
def make_bash(sandbox: Sandbox, tmp_path: Path) -> MakeBash:
    def make(mark: str, **settings: Any) -> Tool:
        return bash_tool(tmp_path, sandbox=sandbox, env={"TEST_MARK": mark}, **settings)

    return make


@pytest.mark.parametrize(
    "command",
    [
        "sleep 60 & echo hi",
        "setsid sleep 60 & echo hi",
        "sleep 60 >/dev/null & echo hi",
        "sleep 60 2>/dev/null & echo hi",
        "nohup sleep 60 & disown; echo hi",
        "(sleep 60 &) ; (sleep 61 &) ; echo hi",
        "env -i setsid -f sleep 60.MARK; echo hi",
        "(trap '' TERM HUP; sleep 60; sleep 61) & echo hi",
        "sleep 60 & kill -STOP $!; echo hi",
    ],
    ids=[
        "pipe",
        "setsid",
        "standard error only",
        "standard output only",
        "nohup",
        "orphans",
        "env -i",
        "deaf",
        "stopped",
    ],
)
async def test_a_call_is_over_when_the_shell_is_and_the_background_ends_with_it(
    make_bash: MakeBash, command: str
) -> None:
    """failures.md F7: a background process that holds the pipe is not waited for, and its end is reported."""
    mark = new_mark()
    bash = make_bash(mark)
    await run(bash, "true")  # the trial of the sandbox is not what is measured here
    start = time.monotonic()
    output = await run(bash, command.replace("MARK", mark))
    took = time.monotonic() - start
    assert text(output).splitlines()[0] in ("hi", "nohup: ignoring input")
    assert "hi" in text(output)
    assert took < 30  # a fifth of a second, and a minute if it waited for the background
    assert not output.is_error
    assert (marked(mark), zombies()) == NOTHING_LEFT
    # Or what was about to become a sleep.
    assert set(output.details["ended"]) <= {"sleep", "bash", "sh", "nohup", "setsid", "env"}
    assert "[still running in the background when the command was over, and ended: " in text(output)


async def test_what_ends_by_itself_in_a_moment_is_waited_for(make_bash: MakeBash) -> None:
    """Bash does not wait for the reader of `> >(...)`, and its words count."""
    mark = new_mark()
    output = await run(make_bash(mark), "echo late > >(sleep 0.02; cat)")
    assert (output.content, marked(mark)) == ("late\n", [])


async def test_a_moment_is_longer_for_what_has_to_wait_for_a_processor(tmp_path: Path) -> None:
    """Six programs want the same processor: 0.1 s are over before the reader has had 0.02 s of it."""
    if shutil.which("taskset") is None:
        pytest.skip("there is no program 'taskset'")
    processor = str(min(os.sched_getaffinity(0)))
    busy = ["taskset", "-c", processor, "sh", "-c", "while :; do :; done"]
    others = [await asyncio.create_subprocess_exec(*busy) for _ in range(6)]
    try:
        work = "for ((i = 0; i < 20000; i++)); do :; done"
        command = f"taskset -pc {processor} $$ >/dev/null; echo late > >({work}; cat)"
        output = await run(bash_tool(tmp_path, sandbox="off"), command)
    finally:
        for other in others:
            other.kill()
            await other.wait()
    assert output.content == "late\n"


@pytest.mark.parametrize("name", STUBBORN)
async def test_after_an_abort_nothing_is_left(make_bash: MakeBash, name: str) -> None:
    """failures.md F8, F1: no process with our mark is alive and none is a zombie, within 2.5 seconds.

    Or, where the machine is busy, within ten times what a command takes that does nothing.
    """
    mark = new_mark()
    command = STUBBORN[name].replace("MARK", mark)
    agent = Agent(ScriptedModel(answer(call("bash", command=command)), "Done.").model, tools=[make_bash(mark)])
    stream = agent.prompt("Go.")
    aborted, runs = 0.0, False
    async for event in stream:
        if isinstance(event, ToolExecutionUpdate) and not aborted:
            runs = await happens(lambda: marked(mark))  # in the midst of an exec a process shows no mark
            aborted = time.monotonic()
            agent.abort()
    result = await stream
    assert runs, result.messages
    assert result.end_reason == "aborted"
    assert aborted
    assert await gone(mark, 30) == NOTHING_LEFT
    took = time.monotonic() - aborted
    assert took < 2.5 or took < await ample(lambda: run(make_bash(new_mark()), "true"), 2.5)
    [message] = [message for message in result.messages if isinstance(message, ToolResultMessage)]
    assert (message.text, message.details["status"]) == ("tool call cancelled: operation aborted", "interrupted")


@pytest.mark.parametrize(
    "name", ["plain", "ignores SIGTERM", "stopped itself", "no environment, own session, no parent"]
)
async def test_after_its_time_nothing_is_left(make_bash: MakeBash, name: str) -> None:
    """failures.md F8: the output so far comes back, with the reason of the end."""
    mark = new_mark()
    bash = make_bash(mark)
    seconds = await begun(bash)
    start = time.monotonic()
    output = await run(bash, STUBBORN[name].replace("MARK", mark), timeout=seconds)
    took = time.monotonic() - start - seconds
    assert took < 2.5 or took < await ample(lambda: run(make_bash(new_mark()), "true"), 2.5)
    told = f"[timed out after {seconds:g} s; the command and everything it started were ended]"
    assert output.content == f"ready\n\n{told}"
    assert output.is_error
    assert (output.details["exit_code"], output.details["timed_out"]) == (None, True)
    assert (marked(mark), zombies()) == NOTHING_LEFT


@pytest.mark.soak  # it uses up the processes of the machine for a moment, which fails tests beside it
@pytest.mark.parametrize(("kind", "nests"), [("off", 0), ("landlock", 0), ("landlock", 1)])
@pytest.mark.parametrize("sleeps", [1000, 0.5], ids=["after its time", "in the background"])
async def test_no_process_forks_faster_than_it_is_ended(
    tmp_path: Path, kind: Sandbox, sleeps: float, nests: int
) -> None:
    """Nor do its zombies hold up the supervisor, which would be given up, and the process would live on."""
    if confinement(kind).kind == "none":
        pytest.skip(confinement(kind).reason)
    (tmp_path / "hydra.c").write_text(f"#define NESTS {nests}\n{HYDRA}")
    bash = bash_tool(tmp_path, sandbox=kind)
    if (await run(bash, "cc -DHEADS=6 -static -O2 -w -o hydra hydra.c")).is_error:
        pytest.skip("there is no compiler, or one for another processor")
    soon = await ample(lambda: run(bash, "true"), 7.0)
    start = time.monotonic()
    output = await run(bash, f"./hydra & sleep {sleeps}", timeout=1.5 if sleeps > 1 else 60)
    took = time.monotonic() - start
    assert took < soon
    assert "supervisor" not in text(output)
    assert (sleeps > 1) == ("timed out" in text(output))
    (tmp_path / "alive").unlink()
    assert not await happens(lambda: (tmp_path / "alive").exists(), 0.5)


@pytest.mark.parametrize("waits", ["sleep 1000 & wait", "kill -STOP $$"], ids=["waiting", "stopped"])
async def test_a_command_has_a_moment_to_clean_up(make_bash: MakeBash, tmp_path: Path, waits: str) -> None:
    """SIGTERM comes first, to all of them, and SIGKILL only when that did not help."""
    bash = make_bash(new_mark())
    command = f"trap 'echo cleaned > trace; exit' TERM; echo ready; {waits}"
    output = await run(bash, command, timeout=await begun(bash))
    assert text(output).startswith("ready\n")
    assert (tmp_path / "trace").read_text() == "cleaned\n"


async def test_a_cancelled_command_has_a_moment_too(make_bash: MakeBash, tmp_path: Path) -> None:
    """A short one, so it is tried a few times: other programs may have the processor."""
    for _ in range(5):
        ready = await started(
            make_bash(new_mark()), "trap 'echo cleaned > trace; exit' TERM; echo ready; sleep 1000 & wait"
        )
        ready.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ready
        if (tmp_path / "trace").exists():
            break
    assert (tmp_path / "trace").read_text() == "cleaned\n"


async def test_a_single_cancel_is_enough(make_bash: MakeBash) -> None:
    mark = new_mark()
    task = await started(make_bash(mark), STUBBORN["ignores SIGTERM"])
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    took = time.monotonic() - start
    assert (marked(mark), zombies()) == NOTHING_LEFT
    assert took < 2 or took < await ample(lambda: run(make_bash(new_mark()), "true"), 2)


async def test_steering_that_cancels_ends_the_command_too(make_bash: MakeBash) -> None:
    mark = new_mark()
    script = ScriptedModel(answer(call("bash", command="echo ready; sleep 1000")), "As you like.")
    agent = Agent(script.model, tools=[make_bash(mark)], steering="cancel")
    stream = agent.prompt("Go.")
    async for event in stream:
        if isinstance(event, ToolExecutionUpdate):
            agent.steer("Never mind.")
    assert (await stream).text == "As you like."
    assert await gone(mark) == NOTHING_LEFT


async def test_a_cancel_at_any_moment_leaves_nothing(make_bash: MakeBash) -> None:
    """Also before the process is there, and while the walls are put up."""
    mark = new_mark()
    bash = make_bash(mark)
    for moment in range(12):
        task = asyncio.ensure_future(run(bash, "sleep 1000"))
        await asyncio.sleep(moment * 0.004)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await gone(mark) == NOTHING_LEFT


async def test_a_second_cancel_kills_at_once(make_bash: MakeBash) -> None:
    """The second cancel does not wait for a command that ignores the first."""
    mark = new_mark()
    task = await started(make_bash(mark), STUBBORN["ignores SIGTERM"])
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(mark) == NOTHING_LEFT


async def test_when_we_are_killed_the_command_ends_too(sandbox: Sandbox, tmp_path: Path) -> None:
    """failures.md F10: children are not orphaned, not even by SIGKILL."""
    mark = new_mark()
    program = textwrap.dedent(f"""
        import asyncio, sys
        from steersman import CancelToken, ToolContext
        from steersman.tools.builtin.bash_tool import bash_tool
        bash = bash_tool({str(tmp_path)!r}, sandbox={sandbox!r}, env={{"TEST_MARK": {mark!r}}})
        ctx = ToolContext("1", "bash", CancelToken(), on_update=lambda update: print("ready", flush=True))
        asyncio.run(bash.call({{"command": "trap \\'\\' TERM; setsid sleep 1000 & echo ready; sleep 1001"}}, ctx))
    """)
    ours = await asyncio.to_thread(subprocess.Popen, [sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert ours.stdout is not None
    with ours.stdout as lines:
        assert await asyncio.to_thread(lines.readline) == b"ready\n"
    await until(lambda: marked(mark))  # in the midst of an exec a process shows no mark
    ours.send_signal(signal.SIGKILL)
    ours.wait()
    assert await gone(mark) == NOTHING_LEFT


async def test_a_command_that_kills_its_supervisor_ends_with_it(tmp_path: Path) -> None:
    """Without a sandbox it can do that; what it started carries a mark, by which it is found."""
    mark = new_mark()
    bash = bash_tool(tmp_path, sandbox="off", env={"TEST_MARK": mark})
    output = await run(bash, "setsid sleep 1000 & kill -9 $PPID; sleep 1001")
    told = "The supervisor of the command was killed before it could report, and the command with it."
    assert (output.content, output.is_error) == (told, True)
    assert await gone(mark) == NOTHING_LEFT


@pytest.mark.parametrize("kind", ["bubblewrap", "landlock"])
async def test_what_is_in_a_sandbox_ends_with_its_first_process(tmp_path: Path, kind: Sandbox) -> None:
    """Also what has no mark and no parent, where the supervisor can no longer look after it."""
    if confinement(kind).kind == "none" or (kind == "landlock" and not confinement(kind).own_processes):
        pytest.skip(confinement(kind).reason)
    mark = new_mark()
    command = f"env -i setsid -f sleep 1000.{mark}; touch ready; sleep 1001"
    work = asyncio.create_task(run(bash_tool(tmp_path, sandbox=kind), command))
    await until((tmp_path / "ready").exists)
    assert marked(mark)
    children = [int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]  # noqa: ASYNC240
    [supervisor] = [pid for pid in children if b"restore_guards" in Path(f"/proc/{pid}/cmdline").read_bytes()]  # noqa: ASYNC240
    os.kill(supervisor, signal.SIGKILL)
    assert "The supervisor of the command was killed" in text(await work)
    assert await gone(mark) == NOTHING_LEFT


async def test_a_supervisor_that_hangs_does_not_hold_up_the_call(tmp_path: Path) -> None:
    """It is killed after a while, and what it looked after is found by its mark."""
    mark = new_mark()
    bash = bash_tool(tmp_path, sandbox="off", env={"TEST_MARK": mark})
    command = "setsid sleep 1000 & echo ready $PPID; kill -STOP $PPID; sleep 1001"
    output = await asyncio.wait_for(run(bash, command, timeout=await begun(bash)), 60)
    told = "The supervisor of the command was killed before it could report, and the command with it."
    assert (output.content, output.is_error) == (told, True)
    assert await gone(mark) == NOTHING_LEFT


async def test_a_supervisor_cannot_be_killed_from_inside_the_sandbox(tmp_path: Path) -> None:
    if confinement().kind == "none":
        pytest.skip(confinement().reason)
    output = await run(bash_tool(tmp_path), "kill -9 $PPID 2>/dev/null; echo still here")
    assert text(output).startswith("still here\n")


async def test_what_our_program_ignores_a_command_does_not(tmp_path: Path) -> None:
    """A program that ignores SIGCHLD and SIGPIPE, or blocks SIGTERM, does not pass that on."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    old = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGCHLD, signal.SIGHUP)}
    try:
        output = await run(bash_tool(tmp_path, sandbox="off"), "grep -E '^Sig(Blk|Ign)' /proc/self/status; exit 5")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, was in old.items():
            signal.signal(number, was)
    _, blocking, _, ignoring, *rest = text(output).split()
    # Two signals are the C library's own: it leaves them ignored in what it starts, and that cannot be changed.
    internal = 1 << 31 | 1 << 32
    assert (int(blocking, 16), int(ignoring, 16) & ~internal, rest) == (0, 0, ["[exit", "code", "5]"])


async def test_many_commands_at_once_do_not_mix(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, sandbox="off")
    outputs = await asyncio.wait_for(_all([run(bash, f"sleep 60 & echo {n}; exit {n}") for n in range(12)]), 30)
    assert [text(output).splitlines()[0] for output in outputs] == [str(n) for n in range(12)]
    assert [output.details["exit_code"] for output in outputs] == list(range(12))
    assert zombies() == []


async def test_nothing_is_open_that_was_not_before(tmp_path: Path) -> None:
    bash = bash_tool(tmp_path, sandbox="off")
    await run(bash, "yes | head -c 1M")  # with the folder for long outputs, which stays
    before = os.listdir("/proc/self/fd")
    for command in ("echo hi", "exit 1", "sleep 60 & echo hi", "yes | head -c 1M"):
        await run(bash, command)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= len(before))
    inside = await run(bash, "ls /proc/self/fd | wc -l")
    assert inside.content == "4\n"  # three, and the folder that is listed


async def begun(bash: Tool) -> float:
    """Seconds in which a command has begun for sure: its time counts from before it is there."""
    return await ample(lambda: run(bash, "true"), 0.3)


async def started(bash: Tool, command: str) -> asyncio.Task[Any]:
    """A call that runs, with its first output seen."""
    ready, loop = asyncio.Event(), asyncio.get_running_loop()
    show = partial(loop.call_soon_threadsafe, ready.set)
    task = asyncio.ensure_future(run(bash, command, on_update=lambda _: show()))
    await ready.wait()
    return task


async def _all(work: list[Any]) -> list[Any]:
    tasks = [asyncio.ensure_future(each) for each in work]
    await asyncio.wait(tasks)
    return [task.result() for task in tasks]
