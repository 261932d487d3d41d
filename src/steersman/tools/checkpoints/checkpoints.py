"""`Checkpoints` records what each run changes in a workspace, and takes it back, and forth again.

A call that may change anything is put between two looks at the workspace. What changed from the first to the second is
the call's; what changed since the last call is the user's. A call that writes one file is put between two looks at it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from steersman.tools.checkpoints.restore import Restored, Restorer
from steersman.tools.checkpoints.scan import Limits, Scanner
from steersman.tools.checkpoints.states import Change, Snapshot, State, can_take_back, compare, list_above, merge
from steersman.tools.checkpoints.store import Checkpoint, OpenCall, Place, Store

MAX_AGE = 30 * 24 * 3600.0
"""Seconds after which a checkpoint is removed."""

_FULL = 0.8
"""How full of all that it may keep a store is when the oldest checkpoints are removed."""

_MAX_UNKNOWN = 100
YOURS = "you changed it since"


@dataclass(frozen=True, slots=True)
class Plan:
    """What taking checkpoints back, or forth again, would do: each step from what a path is now.

    `conflicts` are paths that stay as they are, with the reason.
    """

    targets: dict[int, bool]
    steps: Sequence[Change]
    conflicts: Mapping[str, str]


class Checkpoints:
    """The checkpoints of a session in a workspace. All methods block, and may be called from any thread.

    `finished` says what was found half done, and was finished: `/undo`s of programs that were killed.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        path: str | os.PathLike[str],
        session: str,
        *,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        os.makedirs(os.path.dirname(os.path.abspath(path)), 0o700, exist_ok=True)
        self.session = session
        self.finished: list[Restored] = []
        self._limits = limits or Limits()
        self._clock = clock
        self._store = Store(Path(path))
        try:
            self._scanner = Scanner(Path(root), self._limits, self._keep)
            self._bytes = self._store.count_bytes()
            self._last: Snapshot | None = None
            self._before: Snapshot | None = None
            self._calls: dict[str, list[OpenCall]] = {}
            # Only one program at a time writes to a session: what is half done in this one is a killed program's.
            self._finish_what_was_left(None if self._store.is_alone else session)
            if self._store.is_alone:
                self._remove_old()
                self._store.share()
        except BaseException:
            self._store.close()
            raise

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    # Recording

    def begin(self, call: str, place: Place, path: str | None = None) -> None:
        """Look at the workspace, or at one path, before a call; `call` names it for `end`."""
        with self._write():
            if path is None:
                if self._before is None:
                    self._before = self._scan()
                opened = [OpenCall(call, place, None, None)]
            else:
                paths = [*reversed([*list_above(path)]), path]
                states = [(at, self._scanner.look(at)) for at in paths]
                # A folder that is there already is not changed by writing a file.
                opened = [
                    OpenCall(f"{call}:{number}", place, at, state)
                    for number, (at, state) in enumerate(states)
                    if at == path or state is None
                ]
            for one in opened:
                self._store.open_call(one)
            self._calls[call] = opened

    def end(self, call: str) -> None:
        """Look again after a call, and record what it changed."""
        if call in self._calls:
            with self._write():
                self._finish_calls(self._calls.pop(call))

    def record_open_calls(self) -> None:
        """Record what calls that have not ended changed so far, such as one that was given up."""
        with self._write():
            calls = [one for opened in self._calls.values() for one in opened if one.path is None]
            if self._before is not None and calls:
                self._record_scan(calls[0].place, self._before)

    @contextmanager
    def _write(self) -> Generator[None]:
        """Do what is inside as one transaction; after a failure, nothing is known of the workspace any more."""
        try:
            with self._store.write():
                yield
        except BaseException:
            self._last = self._before = None
            self._bytes = self._store.count_bytes()
            raise

    def _finish_calls(self, opened: Iterable[OpenCall]) -> None:
        for call in opened:
            if call.path is not None:
                after = self._scanner.look(call.path)
                changes = [Change(call.path, call.before, after)] if call.before != after else []
                self._record(call.place, changes, ())
            elif self._before is not None:
                self._record_scan(call.place, self._before)
                still = any(one.path is None for others in self._calls.values() for one in others)
                self._before = self._last if still else None
            self._store.close_call(call.id)

    def _record_scan(self, place: Place, before: Snapshot) -> None:
        changes, unknown = compare(before, self._scan())
        self._record(place, changes, unknown)

    def _record(self, place: Place, changes: Sequence[Change], unknown: Sequence[str]) -> None:
        unknown = [*unknown, *(change.path for change in changes if not can_take_back(change))]
        changes = [change for change in changes if can_take_back(change)]
        if changes or unknown:
            checkpoint = self._store.find(place, self._clock())
            known = self._store.read_changes(checkpoint)
            self._store.write_changes(checkpoint, [(change.path, merge(known, change)) for change in changes])
            self._store.write_unknown(checkpoint, sorted(unknown)[:_MAX_UNKNOWN])

    def _scan(self) -> Snapshot:
        if self._last is None:
            self._last = self._store.load_snapshot()
        fresh = self._scanner.scan(self._last)
        self._store.save_snapshot(self._last, fresh)
        self._last = fresh
        return fresh

    def _keep(self, name: str, data: bytes) -> bool:
        if self._store.has(name):
            return True
        if self._bytes + len(data) > self._limits.total_bytes:
            return False
        with self._store.write():
            self._store.keep(name, data)
        self._bytes += len(data)
        return True

    # Going back and forth

    def list(self) -> list[Checkpoint]:
        """The checkpoints of the session, the oldest first."""
        self.record_open_calls()
        return self._store.list_checkpoints(self.session)

    def plan(self, targets: Mapping[int, bool]) -> Plan:
        """Plan to make checkpoints active, or not, by their ids; nothing is changed."""
        found = self.list()
        wanted = {at.id: targets[at.id] for at in found if at.id in targets and targets[at.id] != at.active}
        away = [change.reverse() for at in reversed(found) if at.active and at.id in wanted for change in at.changes]
        forth = [change for at in found if not at.active and at.id in wanted for change in at.changes]
        now: dict[str, State | None] = {}
        then: dict[str, State | None] = {}
        conflicts: dict[str, str] = {}
        for change in (*away, *forth):
            path = change.path
            if path not in now:
                now[path] = then[path] = self._scanner.look(path)
            if path in conflicts or then[path] == change.after:
                continue
            if reason := _find_conflict(change, then[path]):
                conflicts[path] = reason
            else:
                then[path] = change.after
        steps = {path: Change(path, now[path], then[path]) for path in sorted(now) if now[path] != then[path]}
        self._keep_used_folders(steps, conflicts)
        return Plan(wanted, [*steps.values()], conflicts)

    def apply(self, plan: Plan) -> Restored:
        """Do what was planned. A path that has changed since is left as it is."""
        move = self._store.begin_move(self.session, plan.targets, plan.steps)
        restored = Restorer(self._scanner, self._store.read, move.id).run(plan.steps)
        self._store.finish_move(move)
        return restored

    def read(self, state: State | None) -> bytes | None:
        """Read the content of a file in a state; `None` if there is none."""
        return None if state is None or state.kind != "file" else self._store.read(state.digest)

    def _keep_used_folders(self, steps: dict[str, Change], conflicts: dict[str, str]) -> None:
        """Leave out the removal of folders in which something stays."""
        for path in sorted(steps, key=lambda path: path.count("/"), reverse=True):
            old, new = steps[path].before, steps[path].after
            if old is None or old.kind != "folder" or (new is not None and new.kind == "folder"):
                continue
            names = self._scanner.list_names(path)
            inside = [steps.get(f"{path}/{name}") for name in names]
            if any(step is None or step.after is not None for step in inside):
                del steps[path]
                if new is not None:
                    conflicts[path] = "a folder with other files is there"

    # Tidying up

    def _finish_what_was_left(self, session: str | None) -> None:
        """Finish what killed programs left: in this session, or, where no other program uses the store, in any."""
        for move in self._store.list_moves():
            if session in (None, move.session):
                self.finished.append(Restorer(self._scanner, self._store.read, move.id).run(move.steps, again=True))
                self._store.finish_move(move)
        opened = [call for call in self._store.list_calls() if session in (None, call.place.session)]
        if opened:
            with self._store.write():
                if any(call.path is None for call in opened):
                    self._before = self._last = self._store.load_snapshot()
                self._finish_calls(opened)
                self._before = None

    def _remove_old(self) -> None:
        """Remove what is old. No other program uses the store now."""
        self._store.prune(before=self._clock() - MAX_AGE, most_bytes=int(self._limits.total_bytes * _FULL))
        self._bytes = self._store.count_bytes()


def _find_conflict(change: Change, now: State | None) -> str:
    """Why a change cannot be made to what is there; empty if it can."""
    if change.after is not None and change.after.kind == "unkept":
        return "it was too large to be kept"
    if now == change.before:
        return "it is too large to be kept" if now is not None and now.kind == "unkept" else ""
    return YOURS


def remove_session(path: Path, session: str) -> None:
    """Remove the checkpoints of a session from a store, if it exists."""
    if not path.exists():
        return
    store = Store(path)
    try:
        store.remove_session(session)
        if store.is_alone:
            store.prune(before=0.0, most_bytes=Limits().total_bytes)
    finally:
        store.close()
