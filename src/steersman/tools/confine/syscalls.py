"""The system calls `openat2` and `fstatfs` through ctypes, because Python has no functions for them.

Where the kernel has no `openat2`, `has_openat2` says so and paths are resolved step by step instead.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import sys
from collections.abc import Callable
from typing import Any

FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
"""The flags to open a folder that is only a step on the way to another one."""

_OPENAT2 = 437
_OCTAL = re.compile(r"\\([0-7]{3})")  # how the kernel writes blanks and the like in the list of mounts
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08

# Pseudo file systems: the kernel makes their content when it is read, such as memory, keys, environment variables.
_PSEUDO_FILE_SYSTEMS = frozenset(
    (
        0x9FA0,  # proc
        0x62656572,  # sys
        0x64626720,  # debug
        0x74726163,  # trace
        0x73636673,  # security
        0x62656570,  # config
        0x27E0EB,  # cgroup
        0x63677270,  # cgroup2
        0xCAFE4A11,  # bpf
        0xDE5E81E4,  # efivarfs
        0x1CD1,  # devpts
        0x42494E4D,  # binfmt_misc
        0xF97CFF8C,  # selinux
    )
)


def openat2(folder: int, path: str) -> int:
    """Open a folder beneath another one as a file descriptor, without following symlinks.

    It is one system call that cannot lead outside, so there is no TOCTOU race.
    """
    call = _load_openat2()
    if call is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    return call(folder, path)


@functools.cache
def has_openat2() -> bool:
    """Whether the kernel has `openat2` and lets this process use it."""
    try:
        folder = os.open("/", FOLDER)
    except OSError:
        return False
    try:
        os.close(openat2(folder, "."))
    except OSError:
        # Linux before 5.6, another operating system, or a container whose seccomp filter denies the call.
        return False
    finally:
        os.close(folder)
    return True


def is_pseudo_file(descriptor: int) -> bool:
    """Whether an open file is on a pseudo file system such as /proc or /sys."""
    ask = _load_fstatfs()
    return ask is not None and not _PSEUDO_FILE_SYSTEMS.isdisjoint(ask(descriptor))


def list_pseudo_mounts(root: str) -> list[str]:
    """List where pseudo file systems are mounted below a folder, as in the tree of another system."""
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            places = [_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ", 5)[4]) for line in file]
    except OSError:
        return []
    return [place for place in places if place.startswith(root.rstrip(os.sep) + os.sep) and _is_pseudo_mount(place)]


def _is_pseudo_mount(place: str) -> bool:
    try:
        # A folder, or a single file that is mounted.
        descriptor = os.open(place, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False  # covered by another mount
    try:
        return is_pseudo_file(descriptor)
    finally:
        os.close(descriptor)


@functools.cache
def _load_openat2() -> Callable[[int, str], int] | None:
    library = _load_libc()
    if library is None:
        return None
    import ctypes

    class OpenHow(ctypes.Structure):
        _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))

    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS
    size = ctypes.sizeof(OpenHow)

    def call(folder: int, path: str) -> int:
        how = OpenHow(FOLDER, 0, resolve)
        result = library.syscall(
            ctypes.c_long(_OPENAT2),
            ctypes.c_int(folder),
            ctypes.c_char_p(os.fsencode(path)),
            ctypes.byref(how),
            ctypes.c_size_t(size),
        )
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        return int(result)

    return call


@functools.cache
def _load_fstatfs() -> Callable[[int], tuple[int, int]] | None:
    library = _load_libc()
    if library is None:
        return None
    import ctypes

    def ask(descriptor: int) -> tuple[int, int]:
        buffer = ctypes.create_string_buffer(512)
        if library.fstatfs(ctypes.c_int(descriptor), buffer) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        # `f_type` comes first, as a long on nearly every architecture and as an int on the others.
        return int.from_bytes(buffer.raw[:4], sys.byteorder), int.from_bytes(buffer.raw[:8], sys.byteorder)

    return ask


@functools.cache
def _load_libc() -> Any:
    if sys.platform != "linux":
        return None
    try:
        import ctypes

        library = ctypes.CDLL(None, use_errno=True)
    except (ImportError, OSError):
        return None
    library.syscall.restype = ctypes.c_long
    return library
