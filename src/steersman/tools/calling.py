"""How a tool's function is called: arguments by name or as one dict, with or without the context, in a thread.

A `def` tool runs in a thread of the pool. A thread that does not stop is abandoned: the pool starts another one.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

import msgspec

from steersman.tools.output import ToolContext
from steersman.tools.schema.forms import Convert
from steersman.tools.schema.from_types import Parameters, is_context_parameter, resolve_hints

P = ParamSpec("P")
T = TypeVar("T")
OnLate: TypeAlias = Callable[[Any, BaseException | None], None]

MAX_THREADS = 4_000
"""A safe upper limit; more threads would exhaust the machine."""

_IDLE_SECONDS = 10.0
_BUSY, _IDLE = "steersman-tool", "steersman-tool idle"


def is_running_in(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the caller runs in this event loop, and not in another one, in another thread or in none."""
    return asyncio._get_running_loop() is loop  # the public one raises where there is none


def call_soon_in(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    """Schedule a callback on an event loop, from any thread; does nothing when the loop is closed."""
    if is_running_in(loop):
        loop.call_soon(callback, *args)  # all that an event loop of one thread has, such as that of a workflow
        return
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError as error:
        if isinstance(error, NotImplementedError):
            raise  # that is no closed loop


class _Job:
    """One call that runs in a thread, and the future in the event loop that waits for it."""

    __slots__ = ("abandoned", "call", "context", "finished", "future", "loop", "on_late")

    def __init__(self, call: Callable[[], Any], on_late: OnLate | None) -> None:
        self.call = call
        self.context = contextvars.copy_context()
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.on_late = on_late
        self.abandoned = False
        self.finished = False

    def run(self) -> tuple[Any, BaseException | None]:
        try:
            return self.context.run(self.call), None
        except StopIteration as error:
            # A future cannot carry a StopIteration: awaiting code would take it for the end of an iteration.
            return None, _wrap_error("StopIteration", error)
        except Exception as error:  # noqa: BLE001  # it goes to the code that awaits the call
            return None, error
        except BaseException as error:  # noqa: BLE001  # SystemExit and the like end this call, not the program
            return None, _wrap_error(repr(error), error)

    def deliver(self, value: Any, error: BaseException | None) -> None:
        call_soon_in(self.loop, self.settle, value, error)

    def settle(self, value: Any, error: BaseException | None) -> None:
        if not self.future.done():
            if error is None:
                self.future.set_result(value)
            else:
                self.future.set_exception(error)
        elif self.on_late is not None:
            self.on_late(value, error)


class _Worker:
    """A thread and the queue of its next call. The thread's name says whether it is idle."""

    __slots__ = ("inbox", "thread")

    def __init__(self, work: Callable[[_Worker], None]) -> None:
        self.inbox = queue.SimpleQueue[_Job]()
        self.thread = threading.Thread(target=work, args=(self,), name=_BUSY, daemon=True)


class Threads:
    """A pool of threads that end when idle for long; `max_threads` includes the abandoned ones."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self.max_threads = max_threads
        # Reentrant: garbage collection of a coroutine may abandon its call while this thread holds the lock.
        self.lock = threading.RLock()
        self.idle: list[_Worker] = []
        self.threads = 0
        self.running = 0
        self.abandoned = 0

    async def run(self, call: Callable[[], T], *, on_late: OnLate | None = None) -> T:
        """Await a blocking call that runs in a thread, with this task's context variables.

        When the wait is cancelled, the thread is abandoned at once; `on_late(value, error)` is then called in the event
        loop when the call ends. A call that had not begun never begins.
        """
        job = _Job(call, on_late)
        self.submit(job)
        try:
            return await job.future
        except (asyncio.CancelledError, GeneratorExit):
            self.abandon(job)
            raise

    def submit(self, job: _Job) -> None:
        """Pass a call to an idle thread, or to a new one."""
        with self.lock:
            worker = self.idle.pop() if self.idle else self.start_worker()
            worker.thread.name = _BUSY
            self.running += 1
        worker.inbox.put(job)

    def start_worker(self) -> _Worker:
        """Start a thread; raise `RuntimeError` when the limit is reached."""
        if self.threads >= self.max_threads:
            raise RuntimeError(
                f"{self.threads} tool threads are running, {self.abandoned} of them abandoned. "
                "Give long 'def' tools a way to stop (look at ctx.cancelled), or make them 'async def'."
            )
        worker = _Worker(self.run_worker)
        try:
            worker.thread.start()
        except RuntimeError as error:
            raise RuntimeError(
                f"No thread could be started for a tool ({error}); {self.threads} are running, "
                f"{self.abandoned} of them abandoned."
            ) from error
        self.threads += 1
        return worker

    def run_worker(self, worker: _Worker) -> None:
        """Run calls in a thread until it has been idle for long."""
        while (job := self.wait_for_job(worker)) is not None:
            begun = not job.abandoned
            value, error = job.run() if begun else (None, None)
            with self.lock:
                job.finished = True
                self.running -= 1
                self.abandoned -= job.abandoned
                if begun:
                    job.deliver(value, error)
                # Idle only after the outcome is scheduled: tests and callers rely on that order.
                worker.thread.name = _IDLE
                self.idle.append(worker)
            # An idle thread must not keep the last call and its outcome in memory.
            del job, value, error

    def wait_for_job(self, worker: _Worker) -> _Job | None:
        """Wait for the next call of a thread; `None` when the thread should end."""
        while True:
            try:
                return worker.inbox.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self.lock:
                    # If it is not idle, a job was just assigned to it and is about to arrive.
                    if worker in self.idle:
                        self.idle.remove(worker)
                        self.threads -= 1
                        return None

    def abandon(self, job: _Job) -> None:
        """Count a call as abandoned, unless it is over."""
        with self.lock:
            if not job.finished and not job.abandoned:
                job.abandoned = True
                self.abandoned += 1


_pool = Threads()


def _reset_after_fork() -> None:
    """Use a new pool: a forked child has none of its parent's threads, and the lock may be held by one of them."""
    global _pool
    _pool = Threads()


os.register_at_fork(after_in_child=_reset_after_fork)


async def run_in_thread(call: Callable[[], T], *, on_late: OnLate | None = None) -> T:
    """Await a blocking call that runs in a thread, with this task's context variables; see `Threads.run`."""
    if type(asyncio.get_running_loop()).call_soon_threadsafe is asyncio.AbstractEventLoop.call_soon_threadsafe:
        return call()  # no thread can wake this event loop: it is that of a workflow, whose code does not block
    return await _pool.run(call, on_late=on_late)


async def call_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Await `function(*args, **kwargs)` in a thread."""
    return await run_in_thread(lambda: function(*args, **kwargs))


def count_abandoned_threads() -> int:
    """Count the threads whose call was abandoned and still runs."""
    return _pool.abandoned


def count_running_threads() -> int:
    """Count the calls that run in threads, including the abandoned ones."""
    return _pool.running


def _wrap_error(what: str, error: BaseException) -> RuntimeError:
    wrapped = RuntimeError(f"The call raised {what}.")
    wrapped.__cause__ = error
    return wrapped


class CallingConvention(msgspec.Struct, frozen=True):
    """How one function takes its arguments.

    `bundled` functions get them as one dict, with the context after it where `context` is `""`; other functions get
    them by name. Arguments are checked against `schema`, which refuses what the function cannot take.
    """

    function: Callable[..., Any]
    schema: Mapping[str, Any]
    threaded: bool
    bundled: bool = False
    context: str | None = None
    positional: Sequence[str] = ()
    converts: Sequence[tuple[str, Convert]] = ()

    def bind(self, arguments: dict[str, Any], ctx: ToolContext) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and the named arguments for one call."""
        if self.bundled:
            if self.context is None:
                return [arguments], {}
            return ([arguments, ctx], {}) if self.context == "" else ([arguments], {self.context: ctx})
        if not self.converts and self.context is None and not self.positional:
            return [], arguments
        named = dict(arguments)
        for name, convert in self.converts:
            if name in named:
                named[name] = convert(named[name])
        if self.context is not None:
            named[self.context] = ctx
        if not self.positional:
            return [], named
        # A gap would shift the arguments after it, so everything after the first missing one keeps its default.
        first = next((index for index, name in enumerate(self.positional) if name not in named), len(self.positional))
        return [named.pop(name) for name in self.positional[:first]], named


def build_convention_from_signature(function: Callable[..., Any], parameters: Parameters) -> CallingConvention:
    """Describe how to call a function whose schema was made from its own signature."""
    return CallingConvention(
        function,
        parameters.schema,
        not is_async(function),
        context=parameters.context,
        positional=parameters.positional,
        converts=parameters.converts,
    )


def build_convention_from_schema(
    function: Callable[..., Any], schema: Mapping[str, Any], tool: str
) -> CallingConvention:
    """Describe how to call a function that was given with a schema, by the names of its parameters."""
    threaded = not is_async(function)
    try:
        listed = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Some builtins have no signature; most tools with a hand-written schema take one dict.
        return CallingConvention(function, schema, threaded, bundled=True)
    hints = resolve_hints(function, tool)
    named = [p for p in listed if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD]
    rest = any(p.kind is p.VAR_KEYWORD for p in listed)
    context = next((p.name for p in named if is_context_parameter(p.name, hints)), None)
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    others = [p for p in named if p.name != context]
    if any(p.name in _ROLES and p.name not in properties for p in others):
        return _build_convention_with_roles(function, schema, tool, listed, context)
    unknown = [p for p in others if p.name not in properties and p.default is p.empty]
    if len(unknown) == len(others) == 1:
        return _bundle_arguments(function, schema, threaded, context, named)
    if len(unknown) == len(others) == 2 and context is None:
        return CallingConvention(function, schema, threaded, bundled=True, context="")
    if unknown:
        raise _make_parameters_error(tool, unknown)
    positional = [p.name for p in others if p.kind is p.POSITIONAL_ONLY]
    needed = [p.name for p in others if p.default is p.empty]
    closed = _close_schema(schema, [p.name for p in others], needed, tool, rest=rest)
    return CallingConvention(function, closed, threaded, context=context, positional=positional)


# Parts of the context that a function may take by these names: pi's tools are `execute(tool_call_id, params, signal,
# on_update)`, and so are those of its relatives.
_ROLES: dict[str, Callable[[ToolContext], Any]] = {
    "tool_call_id": lambda ctx: ctx.tool_call_id,
    "signal": lambda ctx: ctx.token,
    "on_update": lambda ctx: ctx.update,
}


def _build_convention_with_roles(
    function: Callable[..., Any],
    schema: Mapping[str, Any],
    tool: str,
    listed: Sequence[inspect.Parameter],
    context: str | None,
) -> CallingConvention:
    """Describe how to call a function that takes parts of the context by name, beside its arguments."""
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    named = [p for p in listed if p.kind is not p.VAR_POSITIONAL and p.kind is not p.VAR_KEYWORD]
    roles = {p.name: _ROLES[p.name] for p in named if p.name in _ROLES and p.name not in properties}
    others = [p for p in named if p.name not in roles and p.name != context]
    unknown = [p for p in others if p.name not in properties and p.default is p.empty]
    bundle = unknown[0].name if len(unknown) == len(others) == 1 else None
    if unknown and bundle is None:
        raise _make_parameters_error(tool, unknown)
    if bundle is None:
        needed = [p.name for p in others if p.default is p.empty]
        rest = len(named) < len(listed)
        schema = _close_schema(schema, [p.name for p in others], needed, tool, rest=rest)
    positional = [p.name for p in named if p.kind is p.POSITIONAL_ONLY]

    def call_with_roles(arguments: dict[str, Any], ctx: ToolContext) -> Any:
        given = {name: role(ctx) for name, role in roles.items()}
        given.update(arguments if bundle is None else {bundle: arguments})
        if context is not None:
            given[context] = ctx
        first = [given.pop(name) for name in positional if name in given]
        return function(*first, **given)

    return CallingConvention(call_with_roles, schema, not is_async(function), bundled=True, context="")


def _make_parameters_error(tool: str, unknown: Sequence[inspect.Parameter]) -> TypeError:
    names = ", ".join(repr(p.name) for p in unknown)
    return TypeError(
        f"The function of tool {tool!r} needs {names}, which its schema does not have. "
        "Take the schema's properties by name, or one dict of all arguments, and 'ctx' for the context."
    )


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling the function returns a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(cast(Any, function), "__call__", None)  # noqa: B004  # the question is what kind of call it is
    )


def _bundle_arguments(
    function: Callable[..., Any], schema: Mapping[str, Any], threaded: bool, context: str | None, named: Sequence[Any]
) -> CallingConvention:
    """Pass one dict, and the context by name; pass the context by position where it comes first or second."""
    if context is None:
        return CallingConvention(function, schema, threaded, bundled=True)
    position = [p.name for p in named].index(context)
    if position == 1 and named[1].kind is not named[1].KEYWORD_ONLY:
        context = ""
    elif position == 0 and named[0].kind is not named[0].KEYWORD_ONLY:
        inner = function

        def call_with_context_first(arguments: dict[str, Any], ctx: ToolContext) -> Any:
            return inner(ctx, arguments)

        function, context = call_with_context_first, ""
    return CallingConvention(function, schema, threaded, bundled=True, context=context)


def _close_schema(
    schema: Mapping[str, Any], names: Sequence[str], needed: Sequence[str], tool: str, *, rest: bool
) -> Mapping[str, Any]:
    """Add what the function demands: its required parameters are required, and unknown arguments are refused."""
    properties = cast(Mapping[str, Any], schema.get("properties", {}))
    surplus = [name for name in properties if name not in names]
    if surplus and not rest:
        raise TypeError(
            f"The schema of tool {tool!r} has {', '.join(map(repr, surplus))}, which its function does not take. "
            "Add the parameter, or take one dict of all arguments."
        )
    required = list(dict.fromkeys([*schema.get("required", ()), *needed]))
    result = {**schema, "required": required}
    if not rest and schema.get("additionalProperties") is not False:
        result["additionalProperties"] = False
    return result
