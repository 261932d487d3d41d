"""The child process that serves a model: reads its options from standard input, prints its URL, and ends with us.

When its parent ends in any way, its standard input closes, and it exits: there is nothing to clean up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec


class ChildOptions(msgspec.Struct, frozen=True):
    """The options of the child, sent as one line of JSON; the key is passed only here."""

    path: str
    key: str
    slots: str
    context: int
    parallel: int
    threads: int
    batch: int
    parent: int
    gpu_layers: int | None = None

    def __repr__(self) -> str:
        return f"Orders({self.path!r})"  # not the key


class Ready(msgspec.Struct, frozen=True):
    """The one line that the child prints when it listens."""

    url: str


def main() -> None:
    """Serve one model until standard input ends."""
    _die_with_parent()
    # Native code prints to standard output too; that must not reach our parent.
    output = os.dup(1)
    os.dup2(2, 1)
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=ChildOptions)
    if os.getppid() != orders.parent and os.name == "posix":
        os._exit(0)
    threading.Thread(target=_exit_with_stdin, daemon=True).start()
    server = _start_engine(orders)
    os.write(output, msgspec.json.encode(Ready(server.listening_address)) + b"\n")
    threading.Event().wait()


def _start_engine(orders: ChildOptions) -> Any:
    engine: Any = import_module("xllamacpp")
    os.umask(0o077)
    params = engine.CommonParams()
    params.model.path = orders.path
    params.model_alias = {Path(orders.path).stem}
    _lock_down(params, orders)
    params.n_ctx = orders.context * orders.parallel
    params.n_parallel = orders.parallel
    params.n_batch = params.n_ubatch = orders.batch
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = orders.threads
    params.n_threads_http = 4
    params.slot_save_path = orders.slots + os.sep
    # Otherwise earlier prompts take gigabytes of memory; the slots hold the ones we need.
    params.cache_ram_mib = 0
    params.warmup = False
    params.verbosity = 1
    if orders.gpu_layers is not None:
        params.n_gpu_layers = orders.gpu_layers
    try:
        return engine.Server(params)
    except RuntimeError as error:
        # The native code has printed the reason already; a traceback would push it out of the captured part.
        sys.exit(str(error))


def _lock_down(params: Any, orders: ChildOptions) -> None:
    """Accept connections from this machine only, with the key only, and nothing from a browser."""
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [orders.key]
    # An origin that does not exist; an empty list would be sent as an empty header.
    params.cors_origins = " "
    params.cors_origins_explicit = True
    params.cors_credentials = False
    params.cors_methods = params.cors_headers = ""
    params.ui = params.ui_mcp_proxy = False
    params.endpoint_props = params.endpoint_metrics = False
    params.offline = True


def _exit_with_stdin() -> None:
    while os.read(0, 4096):
        pass
    # Not sys.exit, which would wait for native threads; the parent is gone, so no answer is needed.
    os._exit(0)


def _die_with_parent() -> None:
    """On Linux, let the kernel kill us with our parent, even while native code loads the model."""
    if sys.platform != "linux":
        return
    import ctypes

    try:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    except (OSError, AttributeError):
        pass  # the end of standard input is enough, only later


if __name__ == "__main__":
    main()
