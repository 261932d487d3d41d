"""Landlock: which rights a kernel can hold back, and the rules that give some of them for some places."""

from __future__ import annotations

import sys
from typing import Any

from steersman.tools.confine.places import SandboxPaths

# Below this one, a file that may not be opened can still be cut to nothing.
MIN_LANDLOCK_ABI = 3
LANDLOCK_SIGNALS_ABI = 6

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 0x1, 0x2, 0x4, 0x8
_MAKE_CHAR, _MAKE_BLOCK, _IOCTL_DEV = 0x40, 0x800, 0x8000
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_DEVICE = _READ_FILE | _WRITE_FILE | _IOCTL_DEV
_ALL_SCOPES = 0x1 | 0x2  # abstract sockets, signals
_CREATE_RULESET, _ASK_VERSION = 444, 1


def read_landlock_abi() -> int:
    """The version of Landlock that this kernel speaks; 0 where there is none."""
    if sys.platform != "linux":
        return 0
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).syscall
    return max(0, call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(_ASK_VERSION)))


def build_landlock_rules(places: SandboxPaths, version: int, *, own_memory: bool) -> dict[str, Any]:
    """The rules for a plan: read and run where programs live, everything but devices where the command may write.

    `own_memory` says that the shared memory of the command is its own, so that it may be used.
    """
    handled = _list_handled_rights(version)
    anything = handled & ~(_MAKE_CHAR | _MAKE_BLOCK)
    rules = [
        *((path, _READ) for path in places.readable),
        *((path, anything) for path in places.writable),
        *((path, _DEVICE & handled) for path in places.devices),
        ("/dev", _READ_DIR),
        *([("/dev/shm", anything)] if own_memory else []),
    ]
    return {"handled": handled, "scoped": _ALL_SCOPES if version >= LANDLOCK_SIGNALS_ABI else 0, "rules": rules}


def _list_handled_rights(version: int) -> int:
    """Thirteen rights from the first version on, then REFER, TRUNCATE and IOCTL_DEV."""
    return 0x1FFF | (0x2000 if version >= 2 else 0) | (0x4000 if version >= 3 else 0) | (0x8000 if version >= 5 else 0)
