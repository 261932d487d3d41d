"""`/export FILE`: writes the conversation as Markdown, JSONL or one HTML file, by the ending of the name."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from steersman.agent.agent import Agent
from steersman.cli.exits import UserError
from steersman.cli.sessions.printing import export_markdown
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.session.html_page import export_html
from steersman.types.visible import escape_invisible

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat

_MAX_TITLE = 80


async def export(chat: Chat, name: str) -> None:
    """Writes the conversation to a file; asks before it replaces one."""
    if not name:
        chat.say("error", "/export needs a file: FILE.md, FILE.jsonl or FILE.html.")
        return
    agent = chat.conversation.agent
    path = _read_path(name, agent)
    if (there := _find_file(path)) is not None:
        if not await chat.confirm(f"{_describe_file(path, there)} exists already. Replace it?"):
            chat.say("notice", "Nothing was written.")
            return
        size = _replace(there, agent, path.suffix.lower())
    else:
        size = _create(path, agent)
    chat.say("notice", f"The conversation is in {_escape(str(path))} ({size:,} bytes).")


def _read_path(name: str, agent: Agent) -> Path:
    path = Path(name).expanduser()
    if path.suffix.lower() not in (".md", ".jsonl", ".html"):
        raise UserError(f"The ending says the format: .md, .jsonl or .html, got {_escape(path.name)!r}.")
    if path.suffix.lower() == ".jsonl" and agent.session is None:
        raise UserError("This chat is not saved, so it has no records to export; .md and .html have the conversation.")
    return path


def _find_file(path: Path) -> Path | None:
    """Finds the real path of the file that is there; `None` if there is none."""
    if os.path.lexists(path) and not path.is_file():
        raise UserError(f"{_escape(str(path))!r} exists and is not a file.")
    return Path(os.path.realpath(path)) if path.is_file() else None


def _describe_file(path: Path, real: Path) -> str:
    """Names a file, and where it is if a link leads to it: a project may bring a link to any file of the user."""
    leads = "" if str(real) == os.path.abspath(path) else f", which is {_escape(str(real))!r},"
    return f"{_escape(str(path))!r}{leads}"


def _create(path: Path, agent: Agent) -> int:
    """Writes a new file, readable only by the owner; never over one that appears meanwhile."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        try:
            size = _write(Path(name), agent, path.suffix.lower())
            os.link(name, path)
            return size
        finally:
            os.unlink(name)
    except FileExistsError as error:
        raise UserError(f"{_escape(str(path))!r} exists by now; nothing was written.") from error
    except OSError as error:
        raise UserError(f"Cannot write {_escape(str(path))!r}: {error.strerror}.") from error


def _replace(path: Path, agent: Agent, ending: str) -> int:
    """Replaces the file that was asked about, at once, with the mode it had."""
    if os.path.realpath(path) != str(path):
        raise UserError(f"{_escape(str(path))!r} is a link by now; nothing was written.")
    try:
        mode = path.stat().st_mode & 0o777
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        try:
            size = _write(Path(name), agent, ending)
            os.chmod(name, mode)
            os.replace(name, path)
            return size
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"Cannot write {_escape(str(path))!r}: {error.strerror}.") from error


def _write(path: Path, agent: Agent, ending: str) -> int:
    if ending == ".jsonl":
        assert agent.session is not None
        agent.session.export(path)
        return path.stat().st_size
    entries = agent.context.log.entries
    first = next((message.text for message in agent.context.log.messages if message.role == "user"), "")
    make = export_html if ending == ".html" else export_markdown
    path.write_text(make(" ".join(first.split())[:_MAX_TITLE], entries), encoding="utf-8", errors="replace")
    return path.stat().st_size


def _escape(text: str) -> str:
    return sanitize_line(escape_invisible(text))
