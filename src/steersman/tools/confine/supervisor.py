"""A small program between us and a command: it runs the command and leaves no process of it behind, and no zombie.

It imports nothing of Steersman and little else, so that it starts in milliseconds. It is a subreaper: a process that
loses its parent becomes its child, so none escapes by a second fork or by `setsid`. An order on the pipe ends all of
them, and so does the end of the pipe, when the process that gives the orders has died.
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

_KILL = b"k"  # any other order means SIGTERM
_SIGKILL, _SIGTERM, _SIGCHLD, _SIGCONT, _SIG_SETMASK = 9, 15, 17, 18, 2
_SIG_IGN = ctypes.c_void_p(1)
_SET_DUMPABLE, _SET_CHILD_SUBREAPER = 4, 36
_MOST_FILES = 1 << 20
_OTHER_FILES = 264  # open files besides those of bubblewrap: the seccomp filter is number 200
_ENDED = 1 << 16  # added to a wait status, which is 0 after success
# Seconds for the processes that outlive the command: to end by themselves, after SIGTERM, and after SIGKILL.
_DRAIN, _GRACE, _PATIENCE = 0.1, 0.1, 2.0
_LONGEST_DRAIN = 1.0  # with the time in which they waited for a processor
_RUSH = 0.1  # seconds to reap or to kill without a look at anything else: there may be no end of it
_STEP = 0.01  # seconds between two looks at processes that wait for a processor
_LOOK = 0.2  # seconds to look at all processes: a command can fill the process table
_UNNAMED = "a process that forks without end"

Process = tuple[int, int, str, str]
if TYPE_CHECKING:
    Hold = Callable[[Any], Any]
    Separate = Callable[[Callable[[], None]], None]
    Build = Callable[[dict[str, Any], Separate], None]
    Settle = Callable[[Any, Any], list[Any]]
libc = ctypes.CDLL(None, use_errno=True)


def supervise(plan: dict[str, Any], orders: int, hold: Hold, build: Build, settle: Settle) -> dict[str, Any]:
    """Run the command to its end, end what it left running, restore what it must not change; return the report."""
    _reset_signals()
    if libc.prctl(_SET_CHILD_SUBREAPER, *[ctypes.c_ulong(bit) for bit in (1, 0, 0, 0)]):
        return {"error": "could not become a subreaper"}
    held = hold(plan["held"])
    trouble, main = _start(plan, build)
    if trouble:
        settle((), held)
        return {"error": trouble}
    wrapped: bool = plan["wrapped"]
    status, asked = _watch(main, orders, spared=main if wrapped else 0)
    left = _end_rest(orders, asked=asked, wrapped=wrapped)
    survivors = _list_alive(wrapped=wrapped)
    return {"status": status, "left": left, "survivors": survivors, "refused": settle(plan["guarded"], held)}


def _start(plan: dict[str, Any], build: Build) -> tuple[str, int]:
    """Fork and exec the command; an error before `exec` comes back through a pipe that `exec` closes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        _exec_command(plan, build, writer)
    os.close(writer)
    trouble = b"".join(iter(lambda: os.read(reader, 4096), b""))
    os.close(reader)
    if trouble:
        os.waitpid(pid, 0)
    return trouble.decode("utf-8", "replace"), pid


def _exec_command(plan: dict[str, Any], build: Build, writer: int) -> NoReturn:
    step = "put up the sandbox"
    try:
        os.setsid()  # a session and process group of its own, without a terminal
        given = _hold_input(plan["input"])
        if plan["by_descriptor"]:
            _allow_open_files(len(plan["in_place"]))
        build(plan, _separate)
        if given is not None:
            os.dup2(given, 0)
        step = f"enter {plan['cwd']!r}"
        os.chdir(plan["cwd"])
        step = f"start {plan['argv'][0]!r}"
        os.execve(plan["argv"][0], plan["argv"], plan["env"])
    except BaseException as error:  # noqa: BLE001  # a forked child must not go back into its parent's code, whatever happens
        os.write(writer, f"could not {step}: {error}".encode("utf-8", "replace"))
    os._exit(127)


def _hold_input(data: bytes) -> int | None:
    """Put the input of the command into memory, where it can be read without another process that writes it."""
    if not data:
        return None
    given = os.memfd_create("input")
    view = memoryview(data)
    while view:
        view = view[os.write(given, view) :]
    os.lseek(given, 0, os.SEEK_SET)
    return given


def _allow_open_files(count: int) -> None:
    """Raise the limit of open files where these would not fit, for a workspace with many repositories."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _OTHER_FILES + count
    if 0 <= soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed if hard < 0 else min(needed, hard), hard))


def _separate(prepare: Callable[[], None]) -> None:
    """Go on as a child of the first process in a new namespace of processes, which `prepare` is called in.

    With the first one the kernel ends all of them, also those that fork faster than they can be found. The process
    that calls this stays outside, to end as the command does. It and the first one are not confined.
    """
    told, tells = os.pipe()
    first = os.fork()
    if first:
        _close_all_but(told)
        _end_like(int.from_bytes(os.read(told, 4), "little") or os.waitpid(first, 0)[1])
    os.close(told)
    prepare()
    main = os.fork()
    if main:
        _close_all_but(tells)
        _reap_all(main, tells)
    os.close(tells)
    os.setsid()


def _close_all_but(kept: int) -> None:
    """Close the pipes of the supervisor and of the command, whose ends others wait for."""
    for number in (1, 2):
        os.dup2(0, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, _MOST_FILES)


def _reap_all(main: int, tells: int) -> NoReturn:
    """Reap what ends in the namespace until nothing is left; tell how the command ended."""
    try:
        while True:
            pid, status = os.wait()
            if pid == main:
                os.write(tells, (status + _ENDED).to_bytes(4, "little"))
                os.close(tells)
    finally:
        os._exit(0)


def _end_like(status: int) -> NoReturn:
    """Exit as another process did, which may have been killed by a signal."""
    try:
        if number := status & 0x7F:
            libc.prctl(_SET_DUMPABLE, *[ctypes.c_ulong(0)] * 4)  # one core dump is enough
            os.kill(os.getpid(), number)
    finally:
        os._exit(status >> 8 & 0xFF)


def _reset_signals() -> None:
    """Reset signals that our parent ignored or blocked, so that the command starts with the defaults."""
    for number in range(1, 65):
        libc.signal(number, None)
    libc.sigprocmask(_SIG_SETMASK, ctypes.create_string_buffer(128), None)


def _watch(main: int, orders: int, *, spared: int) -> tuple[int, bool]:
    """Wait for the command to exit and follow orders meanwhile; return its wait status and whether an order came.

    Bubblewrap is `spared` the SIGTERM: it would kill the command, which could then not clean up.
    """
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    try:
        poll.register(os.pidfd_open(main), select.POLLIN)
        pause = 1000
    except (OSError, AttributeError):
        pause = 20  # an older kernel without pidfd: poll
    asked = killing = False
    while main not in (dead := _reap(_RUSH)):
        if asked and not _is_child(main):
            return _SIGKILL, asked
        # Where there are zombies, more may come: a process that forks and exits without end fills the process table.
        for number, _ in poll.poll(1 if dead else 5 if killing else pause):
            if number == orders and not killing:
                if not asked:
                    _leave_no_zombies()
                asked, killing = True, _obey(orders, spared)
        if killing:
            # On every pass: a process may have been forked since the last one.
            _kill_children()
            _signal_all(_SIGKILL)
    return dead[main], asked


def _obey(orders: int, spared: int) -> bool:
    """Send SIGTERM to all; return whether to kill them instead: by order, or because the pipe has ended."""
    letters = os.read(orders, 64)
    if letters and _KILL not in letters:
        _signal_all(_SIGTERM, _SIGCONT, spared=spared)
        return False
    return True


def _end_rest(orders: int, *, asked: bool, wrapped: bool) -> list[str]:
    """End background processes: wait, then SIGTERM, then SIGKILL. Return the names of those that needed SIGTERM."""
    _leave_no_zombies()
    if not asked:
        _drain(orders)
    left = _list_alive(wrapped=wrapped)
    if left:
        _signal_all(_SIGTERM, _SIGCONT)
        _wait_for_all(orders, _GRACE)
    end = time.monotonic() + _PATIENCE
    while not _are_all_gone() and time.monotonic() < end:
        _kill_children()
        _signal_all(_SIGKILL)
        select.poll().poll(2)
    return left


def _leave_no_zombies() -> None:
    """Let the kernel reap from now on, so that reaping comes to an end, and the list of processes stays short.

    The wait status of what ends from now on is lost: after an order it is not asked for.
    """
    libc.signal(_SIGCHLD, _SIG_IGN)
    _reap()


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _drain(orders: int) -> None:
    """Let background processes end by themselves: for a moment, in which time without a processor does not count."""
    if _are_all_gone():
        return
    begin, before = time.monotonic(), _read_schedstats()
    seconds, last = _DRAIN, before
    while not _wait_for_all(orders, begin + seconds - time.monotonic()) and seconds < _LONGEST_DRAIN:
        now = _read_schedstats()
        waited = sum(stat[1] - before.get(pid, (0, 0))[1] for pid, stat in now.items()) / 1e9
        # A wait that still goes on is not in the statistics: the process is ready, and has not run since the last look.
        if any(stat[2] and stat[0] == last.get(pid, (-1,))[0] for pid, stat in now.items()):
            waited = max(waited, time.monotonic() - begin - _DRAIN + _STEP)
        if begin + _DRAIN + waited <= time.monotonic():
            return
        seconds, last = min(_DRAIN + waited, _LONGEST_DRAIN), now


def _read_schedstats() -> dict[int, tuple[int, int, bool]]:
    """Read for each process the nanoseconds on a processor and waiting for one, and whether it waits or runs now."""
    found: dict[int, tuple[int, int, bool]] = {}
    for pid, _, _, state in _list_descendants():
        try:
            with open(f"/proc/{pid}/schedstat", "rb") as file:
                ran, waited = file.read().split()[:2]
        except (OSError, ValueError):
            continue  # it ended meanwhile, or the kernel does not count
        found[pid] = int(ran), int(waited), state == "R"
    return found


def _wait_for_all(orders: int, seconds: float) -> bool:
    """Wait until no process is left or an order comes, at most `seconds`; return whether either happened."""
    poll = select.poll()
    poll.register(orders, select.POLLIN)
    end = time.monotonic() + seconds
    while not _are_all_gone():
        if poll.poll(3):
            return True
        if time.monotonic() >= end:
            return False
    return True


def _reap(seconds: float = float("inf")) -> dict[int, int]:
    """Reap the zombies, for at most some seconds; return their wait status by process id."""
    dead: dict[int, int] = {}
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end and (found := os.waitpid(-1, os.WNOHANG))[0]:
            dead[found[0]] = found[1]
    except ChildProcessError:
        pass
    return dead


def _are_all_gone() -> bool:
    """Whether no process is left, after reaping zombies."""
    _reap()
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def _list_alive(*, wrapped: bool) -> list[str]:
    """List the names of running processes, without bubblewrap's own first process in its namespace."""
    me = os.getpid()
    for _ in range(3):
        if _are_all_gone():
            return []
        found = _list_descendants()
        names = [name for _, parent, name, state in found if state != "Z" and not (wrapped and parent == me)]
        if names or wrapped:
            return names
    return [] if _are_all_gone() else [_UNNAMED]


def _signal_all(*signals: int, spared: int = 0) -> None:
    for pid, _, _, _ in _list_descendants():
        for number in signals if pid != spared else ():
            try:
                os.kill(pid, number)
            except OSError:
                pass  # already ended, or of another user


def _kill_children() -> None:
    """Kill our children for a moment, or until none is left.

    This is faster than to look at all processes: one that forks and exits at once has another id by then. Its child
    becomes ours, as we are a subreaper.
    """
    end = time.monotonic() + _RUSH
    while (children := _list_children()) and time.monotonic() < end:
        for pid in children:
            try:
                os.kill(pid, _SIGKILL)
            except OSError:
                pass  # already ended, or of another user


def _list_children() -> list[int]:
    """List the process ids of our children."""
    try:
        file = os.open("/proc/thread-self/children", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:  # a kernel without this file
        return [pid for pid, parent, _, _ in _list_descendants() if parent == os.getpid()]
    try:
        return [int(word) for word in os.read(file, 65_536).split()]
    finally:
        os.close(file)


def _list_descendants() -> list[Process]:
    """List the processes below this one: process id, parent, name and state. It may miss some of very many."""
    children: dict[int, list[Process]] = {}
    end = time.monotonic() + _LOOK
    for entry in os.listdir("/proc"):
        if entry.isdigit() and time.monotonic() < end:
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    head, _, tail = file.read().rpartition(b")")
            except OSError:
                continue  # it ended meanwhile
            state, parent = tail.split(None, 2)[:2]
            name = head.partition(b"(")[2].decode("utf-8", "replace")
            children.setdefault(int(parent), []).append((int(entry), int(parent), name, state.decode()))
    found = [*children.get(os.getpid(), ())]
    for process in found:
        found.extend(children.get(process[0], ()))
    return found


def main(plan: dict[str, Any], hold: Hold, build: Build, settle: Settle) -> NoReturn:
    """Run the program: read orders from and report to the two file descriptors in its arguments."""
    orders, reports = (int(number) for number in sys.argv[1:3])
    for number in (orders, reports):
        os.set_inheritable(number, False)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    report = marshal.dumps(supervise(plan, orders, hold, build, settle))
    # Close the output before the report, and both before we exit: the reader then only waits for our exit, and we are
    # a zombie no longer than it takes the reader to wake up.
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)
    os.write(reports, report)
    os.close(reports)
    os._exit(0)
