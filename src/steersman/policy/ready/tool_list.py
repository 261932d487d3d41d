"""Which tools a run may use now: the others are hidden from the model, and denied if it calls them anyway."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TypeAlias

from steersman.policy.hooks import PolicyView
from steersman.policy.verdicts import Skip
from steersman.provider.models.registry import find_stream_fn
from steersman.types.messages import AgentMessage
from steersman.types.model import Model, Request, StreamFn, StreamOptions, StreamResponse

AllowTools: TypeAlias = Callable[[Sequence[AgentMessage]], Iterable[str]]


class ToolAllowList:
    """Allows the tools that `allowed(messages)` names at each moment, with wildcards such as `mcp:files:*`.

    In `pre_dispatch_policies=[tools]` it denies the others, also to sub-agents; with `stream_fn=tools.wrap()` it hides
    them. What the function should depend on beside the messages it takes from where it was made, or from a
    `ContextVar`: it is called in the run. If it raises, the call is denied or the request fails.
    """

    def __init__(self, allowed: AllowTools) -> None:
        if not callable(allowed):
            raise TypeError(f"ToolAllowList takes a function of the messages that names tools, got {allowed!r}.")
        self._allowed = allowed

    def __call__(self, view: PolicyView) -> Skip | None:
        """Deny a call of a tool that is not allowed now."""
        if view.call is None or self._is_allowed(view.call.name, self._list_patterns(view.messages)):
            return None
        return Skip(f"Denied: the tool {view.call.name!r} is not available here.")

    def wrap(self, stream_fn: StreamFn | None = None) -> StreamFn:
        """A `StreamFn` that leaves out of each request the tools that are not allowed now."""

        def ask(
            model: Model, request: Request, options: StreamOptions, /
        ) -> StreamResponse | Awaitable[StreamResponse]:
            patterns = self._list_patterns(request.messages)
            tools = [tool for tool in request.tools if self._is_allowed(tool.name, patterns)]
            if not tools and options.tool_choice == "required":
                options = replace(options, tool_choice="auto")  # a server refuses to require one of none
            return (stream_fn or find_stream_fn(model))(model, replace(request, tools=tools), options)

        return ask

    def _list_patterns(self, messages: Sequence[AgentMessage]) -> tuple[str, ...]:
        patterns = self._allowed(messages)
        if isinstance(patterns, str):
            raise TypeError(f"The function of a ToolAllowList names several tools, got {patterns!r}.")
        return tuple(patterns)

    def _is_allowed(self, name: str, patterns: Sequence[str]) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in patterns)
