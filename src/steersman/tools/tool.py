"""`Tool`: a name, a description for the model, a JSON Schema, and a function; and the `tool` decorator."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    Self,
    TypeAlias,
    cast,
    get_args,
    overload,
)

import msgspec

from steersman.tools.calling import CallingConvention, build_convention_from_schema, build_convention_from_signature
from steersman.tools.output import ToolContext, normalize_output
from steersman.tools.schema.containers import compile_quick_test
from steersman.tools.schema.from_types import Parameters, convert_checked, read_parameters
from steersman.tools.schema.validation import InvalidArguments, compile_schema
from steersman.types.errors import ToolError
from steersman.types.frozen import freeze
from steersman.types.guards import is_instance, suggest_options
from steersman.types.tools import ToolOutput

Keys: TypeAlias = Callable[[dict[str, Any]], Iterable[str]]
NeedsApproval: TypeAlias = bool | Callable[[dict[str, Any]], bool]
Preview: TypeAlias = Callable[[dict[str, Any], ToolContext | None], str]
Access: TypeAlias = Literal["read", "edit", "full"]

if TYPE_CHECKING:
    # Only a type checker knows defaults of type parameters before Python 3.13: `Tool` alone is a tool of any function.
    from typing_extensions import ParamSpec, TypeVar  # noqa: TID251  # nothing imports it when a program runs

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")
Q = ParamSpec("Q")
S = TypeVar("S")
T = TypeVar("T")

# What tools usually return.
_NEVER_AWAITED = frozenset((str, int, float, bool, type(None), dict, list, ToolOutput))


class _Wrapped:
    """`__wrapped__` of a tool, by which `inspect.signature` finds that of the function; the class `Tool` has none."""

    def __get__(self, instance: Tool | None, owner: type[Any]) -> Callable[..., Any]:
        if instance is None:
            raise AttributeError(f"{owner.__name__} wraps no function; its instances do.")
        return instance.execute


class Tool(Generic[P, R]):
    """A function that the model can call; calling the tool itself calls the function, with its own signature.

    `sequential` tools run alone; calls whose `keys` share an element run one after another; steering does not cancel
    `uninterruptible` ones; an `idempotent` tool may be called twice with the effect of one call. `access` says what a
    call can change, for an approval policy: "read" nothing, "edit" only files of the workspace, "full" anything.
    `preview(arguments, ctx)` says what a call would do, for the person who is asked: it changes nothing, runs in a
    thread, and raises `ToolError` if the call cannot succeed, which is then its result without a question.
    `takes_context` says that a call needs a `ToolContext` of its own: the function takes one, or its thread may be
    abandoned.
    """

    __slots__ = (
        "__name__",
        "_calling",
        "_check",
        "_is_plain",
        "_parameters",
        "access",
        "description",
        "execute",
        "fits",
        "idempotent",
        "keys",
        "name",
        "needs_approval",
        "parameters",
        "preview",
        "sequential",
        "takes_context",
        "timeout",
        "uninterruptible",
    )
    __wrapped__ = _Wrapped()

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        execute: Callable[P, R],
        *,
        timeout: float | None = None,
        sequential: bool = False,
        keys: Keys | None = None,
        uninterruptible: bool = False,
        idempotent: bool = False,
        needs_approval: NeedsApproval = False,
        access: Access = "full",
        preview: Preview | None = None,
    ) -> None:
        _check_name(name)
        if not callable(execute):
            raise TypeError(f"Tool {name!r} needs a function to execute, got {execute!r}.")
        if not is_instance(description, str):
            raise TypeError(f"The description of tool {name!r} is a string, got {description!r}.")
        if keys is not None and not callable(keys):
            raise TypeError(f"'keys' of tool {name!r} is a function of the arguments, got {keys!r}.")
        if preview is not None and not callable(preview):
            raise TypeError(
                f"'preview' of tool {name!r} is a function of the arguments and a context, got {preview!r}."
            )
        self.name = self.__name__ = name
        self.description = description
        self.parameters: Mapping[str, Any] = _check_object_schema(name, parameters)
        self.execute = execute
        self.timeout = _check_timeout(name, timeout)
        self.sequential = sequential
        self.keys = keys
        self.uninterruptible = uninterruptible
        self.idempotent = idempotent
        self.needs_approval = needs_approval
        self.access: Access = _check_access(name, access)
        self.preview = preview
        self._parameters: Parameters | None = None
        self._set_calling(build_convention_from_schema(execute, self.parameters, name))

    def _set_calling(self, calling: CallingConvention) -> None:
        self._use(calling)
        try:
            self._check = compile_schema(calling.schema)
            # Whether arguments can be passed on as they are, see `check`; False where only that can tell.
            self.fits = compile_quick_test({} if calling.converts else calling.schema)
        except ValueError as error:
            raise ValueError(f"The schema of tool {self.name!r} is wrong: {error}") from error

    def _use(self, calling: CallingConvention) -> None:
        self._calling = calling
        self._is_plain = calling.is_plain
        self.takes_context = calling.context is not None or calling.threaded

    @property
    def threaded(self) -> bool:
        """Whether the tool is a plain `def`, which runs in a thread."""
        return self._calling.threaded

    def check(self, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the arguments the tool will get: a new dict, coerced where that loses nothing.

        Raises `InvalidArguments`, whose text tells the model what to correct.
        """
        if not isinstance(arguments, dict):
            arguments = _to_dict(self.name, arguments)
        try:
            checked: dict[str, Any] = self._check(arguments)
            for name, convert in self._calling.converts:
                if name in checked:
                    convert_checked(convert, checked[name], f"arguments.{name}")
        except InvalidArguments as error:
            raise InvalidArguments(f"Invalid arguments for tool {self.name!r}:\n{error}") from error.__cause__
        return checked

    async def call(self, arguments: dict[str, Any], ctx: ToolContext) -> ToolOutput:
        """Run the tool with checked arguments; exceptions of the tool pass through."""
        calling = self._calling
        try:
            if self._is_plain:
                value = await calling.function(**arguments)
            else:
                positional, named = _bind(calling, arguments, ctx)
                if calling.threaded:
                    value = await self._call_in_thread(positional, named, ctx)
                else:
                    value = await calling.function(*positional, **named)
            if type(value) not in _NEVER_AWAITED and hasattr(value, "__await__"):
                # A plain function that returns a coroutine, such as a lambda around an async function.
                value = await value
        except SystemExit as error:
            raise ToolError(f"The tool tried to exit the program ({error!r}).") from error
        return normalize_output(value)

    async def _call_in_thread(self, positional: Sequence[Any], named: dict[str, Any], ctx: ToolContext) -> Any:
        from steersman.tools.threads import run_in_thread  # with asyncio, which only a run needs

        function, on_late = self._calling.function, ctx.on_late
        if on_late is None:
            return await run_in_thread(lambda: function(*positional, **named))

        def report_late(value: Any, error: BaseException | None) -> None:
            try:
                outcome = normalize_output(value) if error is None else error
            except TypeError as wrong:
                outcome = wrong
            on_late(outcome)

        return await run_in_thread(lambda: function(*positional, **named), on_late=report_late)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, without checks."""
        return self.execute(*args, **kwargs)

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self: Tool[Concatenate[S, Q], T], instance: S, owner: type[Any] | None = None) -> Tool[Q, T]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self: ...
    def __get__(self, instance: Any, owner: type[Any] | None = None) -> Any:
        """Bind a tool that was made from a method to its object."""
        if instance is None or self._parameters is None or not self._parameters.method:
            return self
        bound = self._copy(cast(Any, self.execute).__get__(instance, owner))
        bound._set_calling(build_convention_from_signature(bound.execute, self._parameters))
        return bound

    def with_function(self, execute: Callable[[dict[str, Any], ToolContext], Awaitable[Any]]) -> Tool:
        """A copy, with the same schema and checks, that calls an async function with all arguments and the context.

        It has no preview: that looks at what the tool's own function would find.
        """
        copy = self._copy(execute)
        copy._parameters = copy.preview = None
        copy._use(
            msgspec.structs.replace(
                self._calling, function=execute, threaded=False, bundled=True, context="", positional=()
            )
        )
        return copy

    def _copy(self, execute: Callable[..., Any]) -> Tool:
        copy = object.__new__(Tool)
        for slot in Tool.__slots__:
            setattr(copy, slot, getattr(self, slot))
        copy.execute = execute
        return copy

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"


suggest_options(Tool)  # not as a decorator: a type checker would lose its type parameters


@overload
def tool(function: Callable[Q, T], /) -> Tool[Q, T]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    sequential: bool = False,
    keys: Keys | None = None,
    uninterruptible: bool = False,
    idempotent: bool = False,
    needs_approval: NeedsApproval = False,
    access: Access = "full",
    preview: Preview | None = None,
) -> Callable[[Callable[Q, T]], Tool[Q, T]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **settings: Any,
) -> Any:
    """Make a tool from a typed function: its schema from the signature, its descriptions from the docstring.

    A parameter `ctx: ToolContext` gets the context of the call and is not shown to the model.
    """
    if function is None:

        def decorate(function: Callable[..., Any]) -> Tool:
            return make_tool(function, name, description, settings)

        return decorate
    return make_tool(function, name, description, settings)


def make_tool(function: Any, name: str | None, description: str | None, settings: dict[str, Any]) -> Tool:
    """Make a tool from a typed function; `settings` are those of a `Tool`."""
    if isinstance(function, Tool):
        raise TypeError(f"{function!r} is a tool already; use @tool once.")
    if not callable(function) or isinstance(function, type):
        raise TypeError(
            "A tool is a typed function, @tool on one, a Tool(...), or an object with name, description, parameters "
            f"and execute, got {function!r}."
        )
    if name is None:
        name = cast(str, getattr(function, "__name__", None) or type(function).__name__)
        if name == "<lambda>":
            raise ValueError("A lambda has no name for the model to call; write a def, or use tool(name=...).")
    parameters = read_parameters(function, name)
    summary = parameters.description if description is None else description
    made: Tool = Tool(name, summary, parameters.schema, _take_dict, **settings)
    made.execute = function
    made._parameters = parameters  # pyright: ignore[reportPrivateUsage]  # the second half of making one
    made._set_calling(build_convention_from_signature(function, parameters))  # pyright: ignore[reportPrivateUsage]  # as above
    return made


def _take_dict(_arguments_in_one_dict: dict[str, Any]) -> dict[str, Any]:
    """Take the place of the real function until it is set, so that its signature is read only once.

    The parameter has a name that no tool uses: a tool's own parameter `arguments` would be mistaken for it.
    """
    return _arguments_in_one_dict


def _check_name(name: Any) -> None:
    if not isinstance(name, str):
        raise TypeError(f"A tool's name is a string, got {name!r}.")
    if not name.strip():
        raise ValueError(f"A tool needs a name, got {name!r}.")


def _check_object_schema(name: str, parameters: Any) -> Mapping[str, Any]:
    example = '{"type": "object", "properties": {...}}'
    if not isinstance(parameters, Mapping):
        raise TypeError(f"The parameters of tool {name!r} are a JSON Schema such as {example}, got {parameters!r}.")
    schema = dict(cast(Mapping[str, Any], parameters))
    if "type" not in schema and "properties" in schema:
        schema = {"type": "object", **schema}
    if schema.get("type") != "object":
        raise ValueError(f"The parameters of tool {name!r} are an object schema such as {example}, got {parameters!r}.")
    try:
        msgspec.json.encode(schema)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"The parameters of tool {name!r} are not JSON: {error}.") from error
    return cast(Mapping[str, Any], freeze(schema))


def _check_timeout(name: str, timeout: Any) -> float | None:
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float):
        raise TypeError(f"The timeout of tool {name!r} is a number of seconds or None, got {timeout!r}.")
    if math.isnan(timeout) or timeout <= 0:
        raise ValueError(f"The timeout of tool {name!r} is more than 0 seconds or None for no limit, got {timeout!r}.")
    return timeout


def _check_access(name: str, access: Any) -> Access:
    if access not in get_args(Access):
        raise ValueError(f"The access of tool {name!r} is 'read', 'edit' or 'full', got {access!r}.")
    return access


def _to_dict(name: str, arguments: Any) -> dict[str, Any]:
    if arguments is None:
        return {}
    if isinstance(arguments, Mapping):
        return dict(cast(Mapping[str, Any], arguments))
    raise InvalidArguments(
        f"Invalid arguments for tool {name!r}:\narguments: expected an object, got {arguments!r:.80}"
    )


def _bind(calling: CallingConvention, arguments: dict[str, Any], ctx: ToolContext) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments for one call."""
    if calling.bundled:
        if calling.context is None:
            return [arguments], {}
        return ([arguments, ctx], {}) if calling.context == "" else ([arguments], {calling.context: ctx})
    named = dict(arguments)
    for name, convert in calling.converts:
        if name in named:
            named[name] = convert(named[name])
    if calling.context is not None:
        named[calling.context] = ctx
    if not calling.positional:
        return [], named
    # A gap would shift the arguments after it, so everything after the first missing one keeps its default.
    first = next((index for index, name in enumerate(calling.positional) if name not in named), len(calling.positional))
    return [named.pop(name) for name in calling.positional[:first]], named
