"""Enforces a sandbox plan in the supervisor's processes: namespaces, bind mounts, capabilities, Landlock and seccomp.

`build_sandbox` runs in the forked child before `exec`; when a part fails, the command does not run. `restore_guards`
runs after it, for names that no bind mount can hold because nothing or only a symlink is there: what was put there is
renamed and made useless for git, and a symlink is restored. A held name gets an empty folder meanwhile. Like the
supervisor, it imports nothing of Steersman.
"""

from __future__ import annotations

import ctypes
import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

SECCOMP_FD = 200  # above what this program has open, so that nothing of ours is replaced

_SET_SECCOMP, _CAPBSET_DROP, _SET_NO_NEW_PRIVS, _CAP_AMBIENT = 22, 24, 38, 47
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x4000, 0x40000
_AT_EMPTY_PATH, _AT_RECURSIVE, _RDONLY, _NODEV = 0x1000, 0x8000, 1, 4
_SIOCSIFFLAGS, _IFF_UP, _CAPABILITY_VERSION = 0x8914, 1, 0x20080522
_OPEN_TREE_CLONE, _MOVE_OPEN_FILES = 0x1, 0x4 | 0x40
# These calls have the same number on every architecture.
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_MOUNT_SETATTR, _LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 442, 444, 445, 446
_FILE_RIGHTS = 0x1 | 0x2 | 0x4 | 0x4000 | 0x8000  # execute, write, read, truncate, ioctl: all that a file can be given

# The options of bubblewrap that bind a path, and those that bind a file descriptor.
_BIND_IF_THERE = "--ro-bind-try"
_BINDS = {"--bind": "--bind-fd", "--ro-bind": "--ro-bind-fd", _BIND_IF_THERE: "--ro-bind-fd"}

_ATTEMPTS = 100
_LIVE_PARTS = ("HEAD", "commondir", "config", "config.worktree", "hooks")
_KIND, _IS_FOLDER, _IS_LINK, _ALL_RIGHTS = 0o170000, 0o040000, 0o120000, 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Guard = tuple[str, str | None, str, bool]
"""A path, the text of its symlink (`None` where nothing exists), its real path, and whether the target exists."""

libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def build_sandbox(plan: dict[str, Any], separate: Callable[[Callable[[], None]], None]) -> None:
    """Confine this process for good as the plan says; `OSError` when a part of it is not possible."""
    keep: int | None = plan["capabilities"]
    if _change_view(plan, separate):
        keep = 0  # in a user namespace, capabilities were only needed to build it
    if keep is not None:
        _drop_capabilities(keep)
    if plan["landlock"] is not None:
        _restrict_with_landlock(plan["landlock"], plan["in_place"])
    if plan["seccomp"]:
        _install_seccomp(plan["seccomp"])
    if plan["seccomp_file"]:
        _pass_filter_to_bubblewrap(plan["seccomp_file"])
    if plan["by_descriptor"]:
        plan["argv"] = _pass_descriptors_to_bubblewrap(plan["argv"], plan["in_place"])


def _change_view(plan: dict[str, Any], separate: Callable[[Callable[[], None]], None]) -> bool:
    """Change what the command sees of the file system; return whether a user namespace was needed."""
    view = plan["view"]
    if plan["devices"]:
        # Bubblewrap binds them as they are, and root could change their modes and times.
        _unshare(_NEWNS)
        for path in plan["devices"]:
            _mount_again(path, _RDONLY)
    new_user = view is not None and _enter_namespaces(view)
    if view is not None and view["own_processes"]:
        separate(lambda: _mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _RDONLY))
    os.dup2(os.open("/dev/null", os.O_RDWR), 0)  # the one that is open may not be on a read-only mount
    return new_user


def _enter_namespaces(view: dict[str, Any]) -> bool:
    """Enter namespaces where the file system is mostly read-only; return whether a user namespace was needed."""
    flags = _NEWNS | _NEWIPC | (_NEWNET if view["own_network"] else 0) | (_NEWPID if view["own_processes"] else 0)
    new_user = _unshare(flags)
    if view["own_network"]:
        _enable_loopback()
    # Copied before all is made read-only, and not made writable again: what was read-only in them stays so.
    copies = [(path, _copy_mounts(path)[0]) for path in view["writable"]]
    _restrict_mount(open_in_place("/"), _RDONLY)
    if os.path.isdir("/dev/shm"):
        _mount("tmpfs", "/dev/shm", "tmpfs", _MS_NOSUID | _MS_NODEV)
    for path, copy in copies:
        if not os.path.lexists(path):
            os.makedirs(path)  # the new /dev/shm covers it
        _restrict_mount(copy, _NODEV)
        _mount_copy(copy, open_in_place(path))
    for path, writable in (*view["pinned"], *((path, False) for path in view["held"] if os.path.isdir(path))):
        _mount_again(path, 0 if writable else _RDONLY)
    return new_user


def _unshare(flags: int) -> bool:
    """Enter new namespaces, with private mounts; return whether a user namespace was needed."""
    uid, gid = os.geteuid(), os.getegid()
    new_user = uid != 0 or libc.unshare(flags) != 0
    if new_user:
        _check(libc.unshare(flags | _NEWUSER), "unshare")
        for name, line in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    return new_user


def open_in_place(path: str) -> int:
    """Open a real path as a place for mounts and rules; `OSError` if it leads through a symlink.

    Another command may run in the same workspace, or in one around it, and replace a folder by a link to elsewhere.
    """
    place = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    is_link = os.fstat(place).st_mode & _KIND == _IS_LINK
    if is_link or os.readlink(f"/proc/self/fd/{place}") != path:
        os.close(place)
        raise OSError(f"{path!r} has been replaced by a link")
    return place


def _copy_mounts(path: str) -> tuple[int, int]:
    """Copy what is mounted at a path and below it, or the path itself; return the copy and its place, both open."""
    place = open_in_place(path)
    flags = ctypes.c_uint(_OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_EMPTY_PATH | _AT_RECURSIVE)
    return _check(libc.syscall(_OPEN_TREE, place, b"", flags), f"open_tree {path!r}"), place


def _mount_copy(copy: int, place: int) -> None:
    _check(libc.syscall(_MOVE_MOUNT, copy, b"", place, b"", ctypes.c_uint(_MOVE_OPEN_FILES)), "move_mount")
    os.close(copy)
    os.close(place)


def _mount_again(path: str, attribute: int) -> None:
    copy, place = _copy_mounts(path)
    _restrict_mount(copy, attribute)
    _mount_copy(copy, place)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    _check(libc.mount(*texts, ctypes.c_ulong(flags), None), f"mount {target!r}")


def _restrict_mount(mount: int, attribute: int) -> None:
    """Make an open mount, and those below it, read-only or one without devices."""
    attributes, flags = struct.pack("=QQQQ", attribute, 0, 0, 0), ctypes.c_uint(_AT_EMPTY_PATH | _AT_RECURSIVE)
    _check(libc.syscall(_MOUNT_SETATTR, mount, b"", flags, attributes, ctypes.c_size_t(32)), "mount_setattr")


def _enable_loopback() -> None:
    """Switch on the loopback interface of the new network namespace, for programs that connect to themselves."""
    number = _check(libc.socket(2, 2, 0), "socket")
    request = ctypes.create_string_buffer(struct.pack("=16sh22x", b"lo", _IFF_UP), 40)
    _check(libc.ioctl(number, ctypes.c_ulong(_SIOCSIFFLAGS), request), "switch on the loopback")
    os.close(number)


def _drop_capabilities(keep: int) -> None:
    """Drop all capabilities but those in `keep`, and set no_new_privs so that none comes back."""
    for number in range(64):
        if not keep >> number & 1:
            # Where this fails, we do not have it either.
            libc.prctl(_CAPBSET_DROP, ctypes.c_ulong(number), *[ctypes.c_ulong(0)] * 3)
    libc.prctl(_CAP_AMBIENT, ctypes.c_ulong(4), *[ctypes.c_ulong(0)] * 3)
    header = struct.pack("=Ii", _CAPABILITY_VERSION, 0)
    current = ctypes.create_string_buffer(24)
    _check(libc.capget(header, current), "capget")
    low = [keep & held for held in struct.unpack("=6I", current.raw)[:3]]
    _check(libc.capset(header, struct.pack("=6I", *low, 0, 0, 0)), "capset")
    _check(libc.prctl(_SET_NO_NEW_PRIVS, ctypes.c_ulong(1), *[ctypes.c_ulong(0)] * 3), "set no_new_privs")


def _restrict_with_landlock(plan: dict[str, Any], in_place: list[str]) -> None:
    """Deny every access that the ruleset handles and no rule allows."""
    attribute = struct.pack("=QQQ", plan["handled"], 0, plan["scoped"])
    size = ctypes.c_size_t(24 if plan["scoped"] else 8)
    ruleset = _check(libc.syscall(_LANDLOCK_CREATE, attribute, size, ctypes.c_uint(0)), "landlock_create_ruleset")
    for path, rights in plan["rules"]:
        try:
            place = open_in_place(path) if path in in_place else os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            if path in in_place:
                raise
            continue  # missing, so there is nothing to allow
        if not os.path.isdir(f"/proc/self/fd/{place}"):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, place)
        _check(libc.syscall(_LANDLOCK_ADD, ruleset, 1, rule, ctypes.c_uint(0)), f"landlock_add_rule {path!r}")
        os.close(place)
    _check(libc.syscall(_LANDLOCK_RESTRICT, ruleset, ctypes.c_uint(0)), "landlock_restrict_self")


def _install_seccomp(program: bytes) -> None:
    loaded = ctypes.byref(_Program(len(program) // 8, program))
    _check(libc.prctl(_SET_SECCOMP, ctypes.c_ulong(2), loaded, *[ctypes.c_ulong(0)] * 2), "install the seccomp filter")


def _pass_filter_to_bubblewrap(program: bytes) -> None:
    """Pass the seccomp filter as a file descriptor to bubblewrap, which installs it after its own mounts."""
    read, write = os.pipe()
    os.write(write, program)
    os.close(write)
    os.dup2(read, SECCOMP_FD)
    os.set_inheritable(SECCOMP_FD, True)  # `dup2` leaves it closed on exec where both numbers are the same


def _pass_descriptors_to_bubblewrap(argv: list[str], in_place: list[str]) -> list[str]:
    """Replace the sources of bind mounts by open file descriptors: bubblewrap then refuses what has been exchanged."""
    words: list[str] = []
    place, end = 0, argv.index("--")
    while place < end:
        if argv[place] in _BINDS and argv[place + 1] in in_place:
            path = argv[place + 1]
            try:
                descriptor = open_in_place(path)
            except FileNotFoundError:
                if argv[place] != _BIND_IF_THERE:
                    raise
            else:
                os.set_inheritable(descriptor, True)
                words += [_BINDS[argv[place]], str(descriptor), path]
            place += 3
        else:
            words.append(argv[place])
            place += 1
    return words + argv[end:]


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def hold_names(paths: list[str]) -> dict[str, int]:
    """Make an empty folder at each free name, for a bind mount; return its locked file descriptor by path.

    A name that cannot be held is only guarded: the workspace is read-only, or something has just been put there.
    """
    return {path: folder for path in paths if (folder := _hold(path)) is not None}


def _hold(path: str) -> int | None:
    for _ in range(_ATTEMPTS):
        try:
            folder = _make_held(path)
        except (FileExistsError, FileNotFoundError):
            continue  # another command came first, or has just removed its folder
        except OSError:
            return None
        # Shared: commands that run side by side hold one folder, and the last of them removes it.
        _lock(folder, exclusive=False)
        if _is_at(path, folder):
            return folder
        os.close(folder)
    return None


def _make_held(path: str) -> int:
    parent, name = open_in_place(os.path.dirname(path)), os.path.basename(path)
    try:
        if not os.path.lexists(path):
            os.mkdir(name, 0o755, dir_fd=parent)
        return os.open(name, _FOLDER, dir_fd=parent)
    finally:
        os.close(parent)


def _lock(folder: int, *, exclusive: bool) -> bool:
    """Lock a folder; return whether no other command holds it, as far as the file system can tell."""
    import fcntl

    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB if exclusive else fcntl.LOCK_SH)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without locks
    return True


def _is_at(path: str, folder: int) -> bool:
    try:
        return os.path.samestat(os.lstat(path), os.fstat(folder))
    except OSError:
        return False


def _release(path: str, folder: int) -> bool:
    """Remove the folder of a held name if it is empty and no other command holds it.

    Return whether it was still ours: then the command put nothing there, because it saw a read-only mount.
    """
    ours = _is_at(path, folder)
    try:
        if ours and _lock(folder, exclusive=True):
            parent = open_in_place(os.path.dirname(path))
            try:
                os.rmdir(os.path.basename(path), dir_fd=parent)
            finally:
                os.close(parent)
    except OSError:
        pass  # not empty: it was used from outside
    os.close(folder)
    return ours


def restore_guards(guards: list[Guard], held: dict[str, int] | None = None) -> list[str]:
    """Restore what changed, after every process of the command has ended; return a note for each change."""
    kept = [path for path, folder in (held or {}).items() if _release(path, folder)]
    return [words for each in guards if each[0] not in kept and (words := _restore(*each))]


def _restore(path: str, text: str | None, real: str, there: bool) -> str:
    parent, name = os.path.split(path)
    lost = f"{path!r} is not as it was, and could not be put right: look at it before you use it"
    try:
        folder = os.open(parent, _FOLDER)
    except OSError:
        return lost
    try:
        # Never through a symlink: the command could make us rename files outside the workspace.
        if os.readlink(f"/proc/self/fd/{folder}") != parent:
            return lost
        found = _read_link(folder, name)
        if found == text and (text is None or (os.path.realpath(path), os.path.exists(path)) == (real, there)):
            return ""
        words = f"commands may not make or change {path!r}"
        if found is not None:
            words += f": what was put there is now {_set_aside(folder, name)!r}"
        if text is not None and found != text:
            os.symlink(text, name, dir_fd=folder)
            words += ", and the link is back"
        return words
    except OSError:
        return lost
    finally:
        os.close(folder)


def _read_link(folder: int, name: str) -> str | None:
    """Read the text of a symlink; `None` where nothing exists, and an empty text for anything else."""
    try:
        return os.readlink(name, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return ""


def _set_aside(folder: int, name: str) -> str:
    aside = f"{name}.refused-{os.urandom(4).hex()}"
    try:
        give_rights(folder, _ALL_RIGHTS)  # the command may have forbidden its owner to change it
    except OSError:
        pass  # of another user; the rename says what is wrong
    os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
    place = os.open(aside, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        if os.fstat(place).st_mode & _KIND == _IS_FOLDER:
            give_rights(place, _ALL_RIGHTS)
            inside = os.open(".", _FOLDER, dir_fd=place)
            try:
                _defuse(inside)
            finally:
                os.close(inside)
    except OSError:
        pass  # of another user
    finally:
        os.close(place)
    return aside


def give_rights(place: int, rights: int) -> None:
    """Give rights to the owner of an open folder, by its file descriptor: its path may lead elsewhere by now."""
    mode = os.fstat(place).st_mode
    if mode & _KIND == _IS_FOLDER and mode & rights != rights:
        os.chmod(f"/proc/self/fd/{place}", mode & 0o7777 | rights)


def _defuse(folder: int) -> None:
    """Rename the parts by which git knows a repository, and those that name programs to run."""
    for name in _LIVE_PARTS:
        try:
            aside = f"{name}.refused-{os.urandom(4).hex()}"  # the command may have put something at any name it knows
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            continue  # there is none
