"""Sessions as every version so far has written them: they open, and the same is read from them as in their time."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.session.golden.make import SCENARIOS, expected

from steersman import Agent, Session
from steersman.session.records import FORMAT, decode
from steersman.session.stores.jsonl import import_jsonl
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.store import Store
from steersman.testing import ScriptedModel

GOLDEN = Path(__file__).parent / "golden"
LOGS = sorted(GOLDEN.glob("*/*.jsonl"))


def shown(path: Path) -> str:
    """`1.0/talk`."""
    return f"{path.parent.name}/{path.stem}"


def kept(store: Store, path: Path) -> str:
    """The golden log as a session of the store, as it was."""
    handle = store.create(path.stem)
    handle.append([decode(line) for line in path.read_bytes().splitlines()])
    handle.close()
    return handle.session_id


def test_there_are_golden_logs_of_this_format() -> None:
    assert [path.stem for path in LOGS if path.parent.name == FORMAT] == sorted(SCENARIOS)


@pytest.mark.parametrize("path", LOGS, ids=shown)
async def test_the_same_is_read_from_a_golden_log(path: Path) -> None:
    """Entries, what the model sees, branches, the queue, the replayed events, and the next request on four wires."""
    store = MemoryStore()
    with Session.open(store, kept(store, path), write=False) as session:
        assert (session.problems, session.degraded) == ([], None)
        form = msgspec.json.decode(msgspec.json.encode(await expected(session)))
    assert form == msgspec.json.decode(path.with_suffix(".json").read_bytes())


@pytest.mark.parametrize("path", LOGS, ids=shown)
async def test_a_golden_log_is_gone_on_with(path: Path, stores: Store) -> None:
    script = ScriptedModel("Here I am again.", repeat_last=True)
    with Session.open(stores, kept(stores, path)) as session:
        before = list(session.messages)
        result = await Agent(script.model, session=session).run("Are you there?")
        assert (result.text, list(session.messages)[: len(before)]) == ("Here I am again.", before)


@pytest.mark.parametrize("path", LOGS, ids=shown)
def test_a_golden_log_is_imported(path: Path) -> None:
    """By itself a log is a file to import; nothing in it is lost, and what is unknown stays."""
    store = MemoryStore()
    imported = import_jsonl(path, store)
    wanted = msgspec.json.decode(path.with_suffix(".json").read_bytes())
    with Session.open(store, imported.session_id, write=False) as session:
        assert msgspec.to_builtins(list(session.entries())) == wanted["entries"]
        lines = [decode(line) for line in path.read_bytes().splitlines()]
        assert [record.type for record in session.records()][: len(lines)] == [record.type for record in lines]
