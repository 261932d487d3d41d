"""`/undo`, `/redo` and `/checkpoints`: what a prompt changed in files, taken back after a yes, and forth again."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from steersman.cli.exits import UserError
from steersman.cli.setup.file_history import FileHistory
from steersman.cli.terminal.numbers import format_count
from steersman.cli.terminal.sanitize import sanitize_line
from steersman.context.entries import MessageEntry
from steersman.session.session import Session
from steersman.tools.builtin.changes import compare_lines, split_lines
from steersman.tools.checkpoints.checkpoints import Checkpoints, Plan
from steersman.tools.checkpoints.restore import Restored
from steersman.tools.checkpoints.states import Change, State
from steersman.tools.checkpoints.store import Checkpoint
from steersman.tools.threads import call_in_thread
from steersman.types.messages import UserMessage
from steersman.types.visible import escape_invisible

if TYPE_CHECKING:
    from steersman.cli.chat.commands import Chat


UNDONE = "files_undone"
"""The type of the record of what the model has to know of an undo, until the next run begins."""

_MOST_FILES = 20
_MOST_NAMED = 10
_MAX_TITLE = 60
_MAX_COMPARED = 200_000


async def undo(chat: Chat, name: str) -> None:
    """Takes back what the last prompt changed, or all that was changed since a checkpoint."""
    history = _require_history(chat)
    points = await call_in_thread(history.require)
    active = [at for at in await call_in_thread(points.list) if at.active and at.changes]
    if not active:
        chat.say("notice", "There is nothing to undo: no prompt of this session has changed files.")
        return
    first = _find(name, active) if name else active[-1]
    chosen = [at for at in active if at.id >= first.id]
    await _move(chat, history, {at.id: False for at in chosen}, "Undo", _describe_chosen(chosen))


async def redo(chat: Chat, _: str) -> None:
    """Does again what was undone last."""
    history = _require_history(chat)
    points = await call_in_thread(history.require)
    found = [at for at in await call_in_thread(points.list) if at.changes]
    last = max([number for number, at in enumerate(found) if at.active], default=-1)
    if last + 1 >= len(found):
        chat.say("notice", "There is nothing to redo.")
        return
    chosen = found[last + 1]
    await _move(chat, history, {chosen.id: True}, "Redo", _describe_chosen([chosen]), further=found[last + 2 :])


async def list_checkpoints(chat: Chat, _: str) -> None:
    """Lists the checkpoints of the session, the last one at the bottom."""
    history = _require_history(chat)
    found = [] if history.is_empty else await call_in_thread((await call_in_thread(history.require)).list)
    if not found:
        chat.say("notice", "There are no checkpoints: no prompt of this session has changed files.")
        return
    session = chat.conversation.agent.session
    chat.say("notice", "\n".join(line for at in found for line in _render_checkpoint(at, session)))


async def offer_files(chat: Chat, entries: Collection[str]) -> None:
    """Offers to take the files to where they were at a place in the conversation, which has these entries."""
    history = chat.files
    if history is None or history.is_empty:
        return
    points = await call_in_thread(history.require)
    found = await call_in_thread(points.list)
    targets = {at.id: at.place.entry in entries for at in found if at.active != (at.place.entry in entries)}
    plan = await call_in_thread(points.plan, targets)
    if not plan.steps:
        return
    content = await call_in_thread(_describe_plan, points, plan, found)
    question = f"Take {format_count(len(plan.steps), 'file')} back as well? Anything but yes: only the conversation."
    if await chat.confirm(question, content):
        chat.say("notice", _describe_result(await call_in_thread(points.apply, plan), "Taken back"))
    else:
        chat.say("notice", "The files stay as they are.")


def find_untold(session: Session) -> list[str]:
    """What the model was not told yet, because the chat ended after an undo."""
    texts: list[str] = []
    for record in session.records():
        if record.type == "run_start":
            texts = []
        elif record.type == UNDONE:
            texts.append(str(record.payload.get("text", "")))
    return texts


def make_note(text: str) -> UserMessage:
    """What the model reads of an undo."""
    return UserMessage(text, synthetic=True)


async def _move(
    chat: Chat,
    history: FileHistory,
    targets: Mapping[int, bool],
    verb: str,
    what: str,
    further: Sequence[Checkpoint] = (),
) -> None:
    points = await call_in_thread(history.require)
    plan = await call_in_thread(points.plan, targets)
    content = await call_in_thread(_describe_plan, points, plan, await call_in_thread(points.list))
    if not await chat.confirm(f"{verb} {what}? These files change:", content):
        chat.say("notice", "The files stay as they are.")
        return
    if chat.conversation.running:
        raise UserError(f"/{verb.lower()} needs the run to end first; Ctrl-C interrupts it.")
    restored = await call_in_thread(points.apply, plan)
    chat.say("notice", _describe_result(restored, "Undone" if verb == "Undo" else "Redone"))
    if further:
        chat.say("notice", f"/redo again makes {_describe_chosen(further)} too.")
    if restored.done:
        text = _write_note(restored, verb)
        chat.conversation.add_note(make_note(text))
        session = chat.conversation.agent.session
        if session is not None:
            session.recorder.add(UNDONE, {"text": text})


def _require_history(chat: Chat) -> FileHistory:
    if chat.files is None:
        raise UserError(
            "There are no checkpoints: this chat has no tools, is not saved, or the settings have checkpoints = false."
        )
    return chat.files


def _find(name: str, active: Sequence[Checkpoint]) -> Checkpoint:
    for at in active:
        if name in (f"c{at.number}", str(at.number)):
            return at
    known = ", ".join(f"c{at.number}" for at in active[-_MOST_NAMED:])
    raise UserError(f"No checkpoint {_escape(name)!r} that could be undone. The last ones: {known}.")


def _describe_chosen(chosen: Sequence[Checkpoint]) -> str:
    first, last = chosen[0], chosen[-1]
    return f"c{first.number}" if first is last else f"c{first.number} to c{last.number}"


# What is shown of files: names are foreign text


def _render_checkpoint(at: Checkpoint, session: Session | None) -> list[str]:
    undone = "" if at.active else " (undone)"
    files = [change for change in at.changes if not _is_folder(change)]
    title = "" if session is None else _find_title(session, at.place.entry)
    lines = [f"c{at.number}{undone}  {format_count(len(files), 'file')}  {title}".rstrip()]
    names = [_escape(change.path) for change in files]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    lines += [f"    {', '.join(names[:_MOST_NAMED])}{more}"] if names else []
    if at.unknown:
        listed = ", ".join(map(_escape, at.unknown[:_MOST_NAMED]))
        lines.append(f"    changed and not covered: {listed}{' and more' if len(at.unknown) > _MOST_NAMED else ''}")
    return lines


def _find_title(session: Session, entry: str) -> str:
    """The prompt that led to an entry."""
    try:
        entries = session.entries(entry)
    except Exception:  # noqa: BLE001  # the entry may be of a part that is damaged: a list without titles is of use
        return ""
    messages = [at.message for at in entries if isinstance(at, MessageEntry)]
    said = [at.text for at in messages if isinstance(at, UserMessage) and not at.synthetic]
    line = _escape(" ".join(said[-1][: 4 * _MAX_TITLE].split())) if said else ""
    return line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1]}…"


def _describe_plan(points: Checkpoints, plan: Plan, found: Sequence[Checkpoint]) -> str:
    lines = [f"{_escape(step.path)}  {_describe_step(points, step)}" for step in plan.steps[:_MOST_FILES]]
    lines += [f"and {len(plan.steps) - _MOST_FILES} more"] if len(plan.steps) > _MOST_FILES else []
    unknown = {path: "it is not covered" for at in found if at.id in plan.targets for path in at.unknown}
    lines += _describe_left({**unknown, **plan.conflicts})
    return "\n".join(lines) or "none"


def _describe_left(left: Mapping[str, str]) -> list[str]:
    """What stays as it is, and why."""
    lines = [f"{_escape(path)}  stays as it is: {_escape(why)}" for path, why in list(left.items())[:_MOST_FILES]]
    return lines + ([f"and {len(left) - _MOST_FILES} more stay"] if len(left) > _MOST_FILES else [])


def _describe_step(points: Checkpoints, step: Change) -> str:
    old, new = step.before, step.after
    if new is None:
        return "is removed" if old is None or old.kind != "folder" else "is removed (a folder)"
    if old is None:
        return {"file": "comes back", "link": "comes back (a link)"}.get(new.kind, "comes back (a folder)")
    if old.kind == new.kind == "file" and old.digest != new.digest:
        return _count_lines(points, old, new)
    return f"gets mode {new.mode:03o}" if old.kind == new.kind != "link" else f"is a {new.kind} again"


def _count_lines(points: Checkpoints, old: State, new: State) -> str:
    size = f"{old.size:,} to {new.size:,} bytes"
    if max(old.size, new.size) > _MAX_COMPARED:
        return size
    try:
        before, after = [split_lines((points.read(state) or b"").decode()) for state in (old, new)]
    except UnicodeDecodeError:
        return f"binary, {size}"
    swaps = compare_lines(before, after)
    return f"+{sum(len(swap.lines) for swap in swaps)} -{sum(swap.end - swap.start for swap in swaps)}"


def _describe_result(restored: Restored, done: str) -> str:
    files = [step for step in restored.done if not _is_folder(step)]
    return "\n".join([f"{done}: {format_count(len(files), 'file')}.", *_describe_left(restored.failed)])


def _write_note(restored: Restored, verb: str) -> str:
    """What the model has to know: which files are not as it thinks."""
    paths = [step.path for step in restored.done if not _is_folder(step)]
    names = ", ".join(repr(_escape(path)) for path in paths[:_MOST_FILES])
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    told = "took back" if verb == "Undo" else "made again"
    return (
        f"The user {told} changes of files with /{verb.lower()}: {names}{more}. They are not as you left them: read "
        "them again before you rely on them or change them."
    )


def _is_folder(change: Change) -> bool:
    return any(state is not None and state.kind == "folder" for state in (change.before, change.after)) and all(
        state is None or state.kind == "folder" for state in (change.before, change.after)
    )


def _escape(text: str) -> str:
    return sanitize_line(escape_invisible(text))
