"""`CancelToken`: asks a run to stop. It never waits; code that waits registers a callback."""

from __future__ import annotations

from collections.abc import Callable


class CancelToken:
    """A one-way flag: `cancel()` is idempotent and calls each callback once, in registration order."""

    __slots__ = ("_callbacks", "reason")

    def __init__(self) -> None:
        self.reason: str | None = None
        self._callbacks: dict[object, Callable[[], None]] = {}

    @property
    def cancelled(self) -> bool:
        """Whether `cancel()` was called."""
        return self.reason is not None

    def is_set(self) -> bool:
        """The same by the name that an `asyncio.Event` has for it."""
        return self.reason is not None

    def cancel(self, reason: str = "aborted") -> None:
        """Ask the run to stop; the first reason stays."""
        if self.reason is not None:
            return
        self.reason = reason
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            callback()

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back when cancelled, at once if that already happened. Returns a function that removes the callback."""
        if self.reason is not None:
            callback()
            return lambda: None
        key = object()
        self._callbacks[key] = callback
        if self.reason is not None and self._callbacks.pop(key, None) is not None:
            callback()  # another thread cancelled in between and did not see this callback
        return lambda: self._callbacks.pop(key, None) and None
