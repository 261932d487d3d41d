"""A chat in a real terminal, with a strict server for its model, and tools that wait for the test."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.cli.command import Place, command_line, environment
from tests.cli.pty_terminal import Terminal

from steersman.testing.servers import StrictServer

READY = "· /help"
SIZES = [(120, 40), (80, 24), (40, 15)]
"""The columns and rows of the windows in which everything has to be readable."""

WAITING = "sh wait.sh"
"""A command that makes a file `begun`, writes `started` and goes on once there is a file `go`; it needs no approval."""


@contextmanager
def chatting(
    place: Place,
    server: StrictServer,
    *arguments: str,
    columns: int = 80,
    rows: int = 24,
    env: Mapping[str, str] | None = None,
    ready: str = READY,
) -> Generator[Terminal]:
    """A chat that is ready for its first prompt."""
    script = "touch begun; echo started; until [ -e go ]; do sleep 0.02; done; echo over\n"
    (place.project / "wait.sh").write_text(script)
    allowed = ["--allowed-tools", f"bash({WAITING})"]
    with Terminal(
        command_line([*allowed, *arguments], server),
        columns=columns,
        rows=rows,
        env=environment(place, server, env),
        cwd=place.project,
    ) as terminal:
        terminal.wait_for(ready)
        yield terminal


def below(terminal: Terminal, mark: str) -> str:
    """What stands below the last place with this text, in one line; empty while the text is nowhere."""
    _, found, text = terminal.everything.rpartition(mark)
    return " ".join(text.split()) if found else ""


def go(place: Place) -> None:
    """Let the waiting command go on."""
    (place.project / "go").touch()


def heard(server: StrictServer, number: int) -> list[tuple[str, str]]:
    """Who said what in the request of this number, without the system prompt."""
    messages: list[dict[str, Any]] = server.requests[number]["messages"]
    return [(message["role"], _text(message)) for message in messages if message["role"] not in ("system", "developer")]


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
