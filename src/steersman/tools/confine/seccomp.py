"""Builds the seccomp filter (BPF) of a sandboxed command, as bytes for the kernel. Pure: no system call is made here.

It allows what ordinary programs do. It denies sockets of families that are not allowed, namespaces, mounts, setuid
files, and the system calls that reach into the kernel or around the rest of the sandbox.
"""

from __future__ import annotations

import platform
import struct
from collections.abc import Iterable
from typing import NamedTuple

INET, INET6, NETLINK = 2, 10, 16
_UNIX, _STREAM, _SEQUENCED = 1, 1, 5

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _NOT_PERMITTED, _NOT_THERE = 0x7FFF0000, 0x00050000 | 1, 0x00050000 | 38
_NUMBER, _ARCHITECTURE, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40  # offsets in `struct seccomp_data`
_UPPER = 4  # from there to the upper half of an argument, on little-endian processors
_OPENAT2, _FCHMODAT2 = 437, 452
_CREATES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE: without them, `open` ignores its mode
_SETUID, _SETGID = 0o4000, 0o2000
_NEW_NAMESPACE = 0x7E020000
_TYPE_INTO_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX


class _Machine(NamedTuple):
    """An architecture: its audit number, and the numbers of the system calls that the filter checks."""

    audit: int
    foreign_from: int | None
    clone: int
    clone3: int
    ioctl: int
    prlimit: int
    socket: int
    socketpair: int
    unshare: int
    denied: tuple[int, ...]
    shared: tuple[int, ...]
    # Calls that set the mode of a file: the number, and where the mode is. `opening` also has the place of the flags.
    opening: tuple[tuple[int, int, int], ...]
    making: tuple[tuple[int, int], ...]
    changing: tuple[tuple[int, int], ...]
    # Calls that change how a process is scheduled: those whose first argument is its id, and those whose second is one,
    # with the first argument that means all processes of a user.
    scheduling: tuple[int, ...]
    ranking: tuple[tuple[int, int], ...]


# The same on all: io_uring, which opens sockets past any seccomp filter; the new mount calls; pidfd_getfd; quotactl_fd.
_DENIED_EVERYWHERE = (*range(425, 434), 438, 442, 443, 467)
_MACHINES = {
    "x86_64": _Machine(
        audit=0xC000003E,
        foreign_from=0x40000000,  # x32 calls have other numbers than those below
        clone=56,
        clone3=435,
        ioctl=16,
        prlimit=302,
        socket=41,
        socketpair=53,
        unshare=272,
        # syslog modify_ldt pivot_root acct settimeofday mount umount2 swapon swapoff reboot sethostname setdomainname
        # iopl ioperm init_module delete_module quotactl lookup_dcookie clock_settime kexec_load add_key request_key
        # keyctl perf_event_open open_by_handle_at setns finit_module kexec_file_load bpf userfaultfd
        denied=(
            103, 154, 155, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 212, 227, 246, 248,
            249, 250, 298, 304, 308, 313, 320, 321, 323,
        ),
        # shmget shmat shmctl semget semop semctl msgget msgsnd msgrcv msgctl semtimedop mq_open mq_unlink
        shared=(29, 30, 31, 64, 65, 66, 68, 69, 70, 71, 220, 240, 241),
        opening=((2, _SECOND, _THIRD), (257, _THIRD, _FOURTH)),  # open openat
        making=((85, _SECOND), (133, _SECOND), (259, _THIRD)),  # creat mknod mknodat
        changing=((90, _SECOND), (91, _SECOND), (268, _THIRD), (_FCHMODAT2, _THIRD)),  # chmod fchmod fchmodat
        # sched_setparam sched_setscheduler sched_setaffinity sched_setattr migrate_pages move_pages
        scheduling=(142, 144, 203, 314, 256, 279),
        ranking=((141, 2), (251, 3)),  # setpriority ioprio_set
    ),
    "aarch64": _Machine(
        audit=0xC00000B7,
        foreign_from=None,
        clone=220,
        clone3=435,
        ioctl=29,
        prlimit=261,
        socket=198,
        socketpair=199,
        unshare=97,
        # lookup_dcookie umount2 mount pivot_root quotactl acct kexec_load init_module delete_module clock_settime
        # reboot sethostname setdomainname settimeofday syslog add_key request_key keyctl swapon swapoff
        # perf_event_open open_by_handle_at setns finit_module bpf userfaultfd kexec_file_load
        denied=(
            18, 39, 40, 41, 60, 89, 104, 105, 106, 112, 116, 142, 161, 162, 170, 217, 218, 219, 224, 225, 241, 265, 268,
            273, 280, 282, 294,
        ),
        shared=(194, 196, 195, 190, 193, 191, 186, 189, 188, 187, 192, 180, 181),
        opening=((56, _THIRD, _FOURTH),),
        making=((33, _THIRD),),
        changing=((52, _SECOND), (53, _THIRD), (_FCHMODAT2, _THIRD)),
        scheduling=(118, 119, 122, 274, 238, 239),
        ranking=((140, 2), (30, 3)),
    ),
}  # fmt: skip

_Step = tuple[int, int, int, int]


def is_supported(machine: str | None = None) -> bool:
    """Whether there is a filter for this architecture."""
    return (machine or platform.machine()) in _MACHINES


def build_filter(
    families: Iterable[int],
    *,
    setgid: bool = False,
    shared: bool = True,
    alone: bool = True,
    machine: str | None = None,
) -> bytes:
    """Build the filter; `families` are the socket families that may be opened.

    A connected pair of sockets (`socketpair`) is always allowed: it reaches no other process. `setgid` lets `chmod` set
    the setgid bit, which folders have where a group shares them. `shared` allows the shared memory, semaphores and
    message queues that have no place in the file system: without a namespace, they are those of other programs too.
    `alone` says that the command sees its own processes only; otherwise it may not change how others are scheduled.
    """
    known = _MACHINES[machine or platform.machine()]
    steps: list[_Step] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, known.audit),
        (_RETURN, 0, 0, _NOT_THERE),
        (_LOAD, 0, 0, _NUMBER),
    ]
    if known.foreign_from is not None:
        steps += _return_if(_AT_LEAST, known.foreign_from, _NOT_THERE)
    # The flags of `clone3` and the mode of `openat2` are behind a pointer, which a filter cannot follow; programs fall
    # back to `clone` and `openat`.
    for number in (known.clone3, _OPENAT2):
        steps += _return_if(_EQUAL, number, _NOT_THERE)
    for number in (*known.denied, *_DENIED_EVERYWHERE, *(() if shared else known.shared)):
        steps += _return_if(_EQUAL, number, _NOT_PERMITTED)
    for number in (known.clone, known.unshare):
        steps += _filter_call(number, [(_LOAD, 0, 0, _FIRST), *_return_if(_ANY_BIT, _NEW_NAMESPACE, _NOT_PERMITTED)])
    terminal = [step for request in _TYPE_INTO_TERMINAL for step in _return_if(_EQUAL, request, _NOT_PERMITTED)]
    steps += _filter_call(known.ioctl, [(_LOAD, 0, 0, _SECOND), *terminal])
    steps += _filter_call(known.prlimit, _check_prlimit())
    steps += [] if alone else _check_scheduling(known)
    steps += _check_modes(known, setgid=setgid)
    allowed = [step for family in families for step in _return_if(_EQUAL, family, _ALLOW)]
    steps += _filter_call(known.socket, [(_LOAD, 0, 0, _FIRST), *allowed, (_RETURN, 0, 0, _NOT_PERMITTED)])
    steps += _filter_call(known.socketpair, _check_socketpair())
    steps.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _return_if(test: int, value: int, verdict: int) -> list[_Step]:
    return [(test, 0, 1, value), (_RETURN, 0, 0, verdict)]


def _filter_call(number: int, steps: list[_Step]) -> list[_Step]:
    """Apply steps to one system call only; it is allowed when none of them returns."""
    return [(_EQUAL, 0, len(steps) + 1, number), *steps, (_RETURN, 0, 0, _ALLOW)]


def _check_modes(known: _Machine, *, setgid: bool) -> list[_Step]:
    """Deny to make a file setuid or setgid: it would give the rights of its owner to every user of the machine."""
    steps: list[_Step] = []
    special = _return_if(_ANY_BIT, _SETUID | _SETGID, _NOT_PERMITTED)
    for number, flags, mode in known.opening:
        creates = [(_LOAD, 0, 0, flags), (_ANY_BIT, 1, 0, _CREATES), (_RETURN, 0, 0, _ALLOW)]
        steps += _filter_call(number, [*creates, (_LOAD, 0, 0, mode), *special])
    for number, mode in known.making:
        steps += _filter_call(number, [(_LOAD, 0, 0, mode), *special])
    bits = _SETUID if setgid else _SETUID | _SETGID
    for number, mode in known.changing:
        steps += _filter_call(number, [(_LOAD, 0, 0, mode), *_return_if(_ANY_BIT, bits, _NOT_PERMITTED)])
    return steps


def _check_prlimit() -> list[_Step]:
    """Deny to set the limits of another process: without processor time or open files, our supervisor would end.

    A process sets its own under the id 0. Reading limits is allowed: there is no pointer to new ones then.
    """
    return [
        (_LOAD, 0, 0, _FIRST),
        *_return_if(_EQUAL, 0, _ALLOW),
        (_LOAD, 0, 0, _THIRD),
        (_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, _THIRD + _UPPER),
        *_return_if(_EQUAL, 0, _ALLOW),
        (_RETURN, 0, 0, _NOT_PERMITTED),
    ]


def _check_scheduling(known: _Machine) -> list[_Step]:
    """Deny to change priority, processors and the like of another process: a process names itself by the id 0."""
    other = [(_EQUAL, 1, 0, 0), (_RETURN, 0, 0, _NOT_PERMITTED)]
    steps: list[_Step] = []
    for number in known.scheduling:
        steps += _filter_call(number, [(_LOAD, 0, 0, _FIRST), *other])
    for number, users in known.ranking:
        all_of_user = [(_LOAD, 0, 0, _FIRST), *_return_if(_EQUAL, users, _NOT_PERMITTED)]
        steps += _filter_call(number, [*all_of_user, (_LOAD, 0, 0, _SECOND), *other])
    return steps


def _check_socketpair() -> list[_Step]:
    """Allow connected Unix pairs only: a datagram socket, which SOCK_RAW makes too, could be sent to any address."""
    return [
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 1, 0, _UNIX),
        (_RETURN, 0, 0, _NOT_PERMITTED),
        (_LOAD, 0, 0, _SECOND),
        (_AND, 0, 0, 0xF),
        *[step for kind in (_STREAM, _SEQUENCED) for step in _return_if(_EQUAL, kind, _ALLOW)],
        (_RETURN, 0, 0, _NOT_PERMITTED),
    ]
