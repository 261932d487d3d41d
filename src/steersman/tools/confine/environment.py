"""The environment of a child process: what programs need to work, by name. What is not named here is not passed on."""

from __future__ import annotations

import os
from collections.abc import Mapping

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Where things are, who the user is, how to write: nothing that opens a door.
ALLOWED = frozenset(
    (
        "COLUMNS", "GOROOT", "HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LINES", "LOGNAME", "NVM_DIR", "PATH",
        "PYENV_ROOT", "PYENV_VERSION", "RUSTUP_HOME", "SHELL", "SSL_CERT_DIR", "SSL_CERT_FILE", "TERM", "TMPDIR", "TZ",
        "USER", "VIRTUAL_ENV",
    )
)  # fmt: skip
_ALLOWED_PREFIX = "LC_"


def child_environment(
    extra: Mapping[str, str] | None = None, *, source: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The allowed variables of `source` (our own environment), then `extra`; there is always a PATH and a charset.

    Keys never pass: a variable goes through because its name is on the list, not because it looks harmless.
    """
    source = os.environ if source is None else source
    found = {name: value for name, value in source.items() if name in ALLOWED or name.startswith(_ALLOWED_PREFIX)}
    found["PATH"] = search_path(found.get("PATH", ""))
    if not (found.get("LC_ALL") or found.get("LC_CTYPE") or found.get("LANG")):
        found["LANG"] = "C.UTF-8"
    found.update(extra or {})
    return found


def search_path(path: str) -> str:
    """A PATH of absolute folders: an empty or relative one would run what lies in the working folder."""
    return os.pathsep.join([folder for folder in path.split(os.pathsep) if os.path.isabs(folder)]) or DEFAULT_PATH
