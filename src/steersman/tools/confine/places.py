"""Where a confined command may go: what programs need is readable, the workspace is writable, the rest is not there.

Named places only. Home folders and the configuration of the machine hold secrets, so of those only the parts on the
list are shown.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

# Whole folders of programs and what they read.
_SYSTEM = """
    /usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix/store /gnu/store /snap /proc /sys/devices/system
    /sys/fs/cgroup /sys/kernel/mm /home/linuxbrew/.linuxbrew
"""
# In /etc, what every program may know; passwords, keys and connections are not among it.
_CONFIGURATION = """
    alternatives ca-certificates ca-certificates.conf debian_version default/locale fonts gai.conf gitattributes
    gitconfig group host.conf hostname hosts ld.so.cache ld.so.conf ld.so.conf.d locale.alias locale.conf
    localtime login.defs lsb-release magic magic.mime manpath.config mime.types networks nsswitch.conf
    os-release passwd perl pki/ca-trust pki/tls/cert.pem pki/tls/certs pki/tls/openssl.cnf protocols python3
    redhat-release resolv.conf rpc services shells ssl/cert.pem ssl/certs ssl/openssl.cnf static terminfo
    timezone
"""
# Toolchains in the home folder. These hold programs, not passwords.
_TOOLCHAINS = """
    .asdf .bun/bin .cargo/bin .deno/bin .fnm .local/bin .local/lib .local/share/fnm .local/share/mise/installs
    .local/share/pipx .local/share/uv .nvm .pyenv .rbenv .rustup .sdkman/candidates .volta go/bin
"""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")

# In the workspace, and still not for a command to write: who writes there decides what other programs run.
_PROTECTED = (".git/hooks", ".git/config", ".git/config.worktree", ".git/info/attributes", ".steersman", ".mcp.json")


@dataclass(frozen=True, slots=True)
class Places:
    """What a command may read, write and use.

    `pinned` are paths in the workspace that keep their names, each with whether it can be written.
    """

    readable: tuple[str, ...]
    writable: tuple[str, ...]
    devices: tuple[str, ...] = _DEVICES
    pinned: tuple[tuple[str, bool], ...] = ()


def places(
    root: str,
    scratch: Iterable[str],
    environment: Mapping[str, str],
    *,
    readable: Iterable[str] = (),
    writable: Iterable[str] = (),
    own: Iterable[str] = (sys.prefix, sys.base_prefix),
) -> Places:
    """The places for a command in the workspace `root`, with folders of its own to scribble in (`scratch`).

    `own` is where we run from: in the workspace it is protected, unless it is among the `writable` places.
    """
    java = map(str, Path("/etc").glob("java-*"))
    read = (
        *_SYSTEM.split(),
        *(f"/etc/{name}" for name in _CONFIGURATION.split()),
        *java,
        *_programs(environment),
        *readable,
    )
    allowed = {os.path.realpath(path) for path in writable}
    write = (root, *scratch, *writable)
    return Places(
        tuple(sorted({path for path in read if os.path.exists(path)})),
        tuple(dict.fromkeys(path for path in write if os.path.exists(path))),
        tuple(path for path in _DEVICES if os.path.exists(path)),
        tuple(pin for pin in (*_pinned(root), *_environments(root, own)) if pin[0] not in allowed),
    )


def _environments(root: str, own: Iterable[str]) -> list[tuple[str, bool]]:
    """The Python environments that lie in the workspace."""
    found = dict.fromkeys(os.path.realpath(path) for path in own)
    return [(path, False) for path in found if path != root and _holds(root, [path]) and os.path.isdir(path)]


def _programs(environment: Mapping[str, str]) -> list[str]:
    """The folders of the PATH, this Python, and the toolchains at home; never a folder that has a home inside."""
    home = os.path.expanduser("~")
    found = [*environment.get("PATH", "").split(os.pathsep), sys.prefix, sys.base_prefix]
    found += [environment[name] for name in ("JAVA_HOME", "GOROOT", "VIRTUAL_ENV") if name in environment]
    homes = {os.path.realpath(path) for path in (home, "/home", "/root", "/Users")}
    narrow = [path for path in found if os.path.isabs(path) and not _holds(os.path.realpath(path), homes)]
    return [*narrow, *(os.path.join(home, name) for name in _TOOLCHAINS.split() if os.path.isabs(home))]


def _holds(folder: str, paths: Iterable[str]) -> bool:
    return any(os.path.commonpath((folder, path)) == folder for path in paths)


def _pinned(root: str) -> tuple[tuple[str, bool], ...]:
    """What is protected in the workspace and there already, after the folders above it: an outer one comes first."""
    found: list[tuple[str, bool]] = []
    git = Path(root, ".git")
    if git.is_dir() and not git.is_symlink():
        found.append((str(git), True))
    elif git.is_file():
        found.append((str(git), False))
    found += [(str(path), False) for name in _PROTECTED if (path := Path(root, name)).exists()]
    if git.is_dir():
        found += [(str(path), False) for name in ("config", "hooks") for path in sorted(git.glob(f"modules/*/{name}"))]
    return tuple(found)
