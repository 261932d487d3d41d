"""Runs one command and leaves nothing of it behind: a small program of its own, between us and the command.

It imports nothing of Steersman and as little else as can be, so that it is on its feet in milliseconds. It is the
subreaper of what it starts: whoever loses its parent there becomes its child, so none gets away, neither by a second
fork nor by `setsid`. A letter ends them all, and so does silence, when whoever gave the orders has died.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, NoReturn

_KILL = b"k"  # any other letter asks everything to end
_SIGKILL, _SIGTERM, _SIGCONT, _SIG_SETMASK = 9, 15, 18, 2
_SET_CHILD_SUBREAPER = 36
# Seconds for what is left when the command is over: to end by itself, to end when asked to, to be gone when killed.
_DRAIN, _GRACE, _PATIENCE = 0.1, 0.1, 2.0

Process = tuple[int, int, str, str]
if TYPE_CHECKING:
    Build = Callable[[dict[str, Any]], None]
    Settle = Callable[[Any], list[Any]]
libc = ctypes.CDLL(None, use_errno=True)


def supervise(plan: dict[str, Any], orders: int, build: Build, settle: Settle) -> dict[str, Any]:
    """Run the command to its end, end what it left running, put right what it may not change; what is to be said."""
    _reset_signals()
    if libc.prctl(_SET_CHILD_SUBREAPER, *[ctypes.c_ulong(bit) for bit in (1, 0, 0, 0)]):
        return {"error": "could not become a subreaper"}
    trouble, main = _start(plan, build)
    if trouble:
        return {"error": trouble}
    wrapped: bool = plan["wrapped"]
    status, asked = _watch(main, orders, spared=main if wrapped else 0)
    left = _end_rest(orders, asked=asked, wrapped=wrapped)
    survivors = _list_alive(wrapped=wrapped)
    return {"status": status, "left": left, "survivors": survivors, "refused": settle(plan["guarded"])}


def _start(plan: dict[str, Any], build: Build) -> tuple[str, int]:
    """Fork and become the command; what fails before that is told through a pipe that `exec` closes."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec_command(plan, build, tell)
    os.close(tell)
    trouble = b"".join(iter(lambda: os.read(told, 4096), b""))
    os.close(told)
    if trouble:
        os.waitpid(pid, 0)
    return trouble.decode("utf-8", "replace"), pid


def _exec_command(plan: dict[str, Any], build: Build, tell: int) -> NoReturn:
    step = "put up the sandbox"
    try:
        os.setsid()
        build(plan)
        step = f"enter {plan['cwd']!r}"
        os.chdir(plan["cwd"])
        step = f"start {plan['argv'][0]!r}"
        os.execve(plan["argv"][0], plan["argv"], plan["env"])
    except BaseException as error:  # noqa: BLE001  # a forked child must not go back into its parent's code, whatever happens
        os.write(tell, f"could not {step}: {error}".encode("utf-8", "replace"))
    os._exit(127)


def _reset_signals() -> None:
    """What our parent ignored or blocked is no affair of the command's."""
    for number in range(1, 65):
        libc.signal(number, None)
    libc.sigprocmask(_SIG_SETMASK, ctypes.create_string_buffer(128), None)


def _watch(main: int, orders: int, *, spared: int) -> tuple[int, bool]:
    """Wait for the command to exit and obey meanwhile; its wait status, and whether somebody asked for its end.

    A wrapper is `spared` a request to end: it would take the command with it, which could no longer clean up.
    """
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    try:
        poll.register(os.pidfd_open(main), select.POLLIN)
        pause = 1000
    except (OSError, AttributeError):
        pause = 20  # an older kernel, which has to be asked
    asked = killing = False
    while main not in (dead := _reap()):
        for number, _ in poll.poll(5 if killing else pause):
            if number == orders and not killing:
                asked, killing = True, _obey(orders, spared)
        if killing:
            # Every time round: what was forked just now was not there the last time.
            _signal_all(_SIGKILL)
    return dead[main], asked


def _obey(orders: int, spared: int) -> bool:
    """Ask everybody to end, or say that they are to be killed: because of the letter, or because nobody is there."""
    letters = os.read(orders, 64)
    if letters and _KILL not in letters:
        _signal_all(_SIGTERM, _SIGCONT, spared=spared)
        return False
    return True


def _end_rest(orders: int, *, asked: bool, wrapped: bool) -> list[str]:
    """End what is left in the background: waited for, asked, then killed. The names of those that had to be asked."""
    if not asked:
        _wait_for_all(orders, _DRAIN)
    left = _list_alive(wrapped=wrapped)
    if left:
        _signal_all(_SIGTERM, _SIGCONT)
        _wait_for_all(orders, _GRACE)
    end = time.monotonic() + _PATIENCE
    while not _are_all_gone() and time.monotonic() < end:
        _signal_all(_SIGKILL)
        select.poll().poll(2)
    return left


def _wait_for_all(orders: int, seconds: float) -> None:
    """Wait until no process is left, for some seconds or until there is an order."""
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    end = time.monotonic() + seconds
    while not _are_all_gone() and time.monotonic() < end and not poll.poll(3):
        pass


def _reap() -> dict[int, int]:
    """The dead children and their wait status, now gone for good."""
    dead: dict[int, int] = {}
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            dead[found[0]] = found[1]
    except ChildProcessError:
        pass
    return dead


def _are_all_gone() -> bool:
    """Whether no process is left, the dead ones reaped."""
    _reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _list_alive(*, wrapped: bool) -> list[str]:
    """The names of those that live; the first process of a wrapper's namespace is none of the command's."""
    me = os.getpid()
    found = [] if _are_all_gone() else _list_descendants()
    return [name for _, parent, name, state in found if state != "Z" and not (wrapped and parent == me)]


def _signal_all(*signals: int, spared: int = 0) -> None:
    for pid, _, _, _ in _list_descendants():
        for number in signals if pid != spared else ():
            try:
                os.kill(pid, number)
            except OSError:
                pass  # gone by itself, or not ours to signal


def _list_descendants() -> list[Process]:
    """All processes below this one: number, parent, name and state."""
    children: dict[int, list[Process]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    head, _, tail = file.read().rpartition(b")")
            except OSError:
                continue  # it went while we looked
            state, parent = tail.split(None, 2)[:2]
            name = head.partition(b"(")[2].decode("utf-8", "replace")
            children.setdefault(int(parent), []).append((int(entry), int(parent), name, state.decode()))
    found = [*children.get(os.getpid(), ())]
    for process in found:
        found.extend(children.get(process[0], ()))
    return found


def main(plan: dict[str, Any], build: Build, settle: Settle) -> NoReturn:
    """The program: it obeys and reports through the two pipes that its arguments name."""
    orders, reports = (int(number) for number in sys.argv[1:3])
    for number in (orders, reports):
        os.set_inheritable(number, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    report = marshal.dumps(supervise(plan, orders, build, settle))
    # The output ends before the report, and both before we do: whoever reads them then waits for nothing but our end,
    # and we are no zombie for longer than it takes to wake up.
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.write(reports, report)
    os.close(reports)
    os._exit(0)
