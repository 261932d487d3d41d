"""A session as a file people can read: the same records come back, from a torn, damaged or foreign file as well."""

from __future__ import annotations

import json
import os
import random
import stat
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.session.kit import types
from tests.session.shaky import ShakyHandle

from steersman import Session
from steersman.session.index import Index
from steersman.session.records import Record, encode
from steersman.session.stores import jsonl
from steersman.session.stores.jsonl import ImportResult, decode_line, encode_line, export_jsonl, import_jsonl
from steersman.session.stores.memory import MemoryStore
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import (
    NewerFormat,
    SessionDamaged,
    SessionError,
    SessionExists,
    Store,
    StoreFailed,
    read_records,
)
from steersman.testing.store_checks import make_record
from steersman.types.messages import user_message

HARD = 'two\nlines\r\n, \u2028\u2029\x85\v\f, \0, 漢字 and {"id":"x"},"crc":"00000000"}'


def _session(*more: Record) -> list[Record]:
    return [
        make_record(1, type="session", format="1.0", session_id="s"),
        make_record(2, type="message", message={"role": "user", "content": HARD}),
        make_record(3, type="from the future", anything=[1, {"a": None}]),
        *more,
    ]


def _exported(path: Path, records: list[Record]) -> bytes:
    handle = MemoryStore().create("s")
    handle.append(records)
    assert export_jsonl(handle, path) == len(records)
    return path.read_bytes()


def _imported(path: Path, store: Store | None = None, **options: Any) -> tuple[list[Record], list[str], ImportResult]:
    store = store or MemoryStore()
    done = import_jsonl(path, store, **options)
    handle = store.open(done.session_id, write=False)
    records = list(read_records(handle))
    handle.close()
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    end = records.pop()
    assert (end.type, done.records, end.id) == ("imported", len(records), records[0].payload.pop("importing"))
    return records, [f"{problem.where}: {problem.text}" for problem in done.problems], done


def test_a_session_comes_back_the_same(tmp_path: Path) -> None:
    """failures.md H4, H13, H15: through a file that only its owner reads, into any store, also unknown records."""
    data = _exported(tmp_path / "s.jsonl", _session())
    assert stat.S_IMODE((tmp_path / "s.jsonl").stat().st_mode) == 0o600
    for store in (MemoryStore(), SqliteStore(tmp_path / "s.db")):
        assert _imported(tmp_path / "s.jsonl", store)[:2] == (_session(), [])
        handle = store.open("s", write=False)
        export_jsonl(handle, tmp_path / "again.jsonl")
        handle.close()
        again = (tmp_path / "again.jsonl").read_bytes().splitlines()
        assert (len(again), again[1:3]) == (4, data.splitlines()[1:])
    assert sorted(path.name for path in tmp_path.glob("*.jsonl*")) == ["again.jsonl", "s.jsonl"]


def test_each_record_is_one_line_for_every_reader(tmp_path: Path) -> None:
    """failures.md H4: also for one that takes Unicode's line separators for the end of a line."""
    data = _exported(tmp_path / "s.jsonl", _session())
    lines = data.decode().splitlines()
    assert data.count(b"\n") == len(lines) == 3
    assert [json.loads(line)["seq"] for line in lines] == [1, 2, 3]
    assert json.loads(lines[1])["payload"]["message"]["content"] == HARD
    assert "漢字" in lines[1]


def test_every_prefix_of_a_file_opens(tmp_path: Path) -> None:
    """failures.md H1: whole lines are there, a torn one is told and kept beside; twice gives the same."""
    data = _exported(tmp_path / "s.jsonl", _session())
    _check_prefixes(tmp_path, data, [*_sampled(data), len(data)])


@pytest.mark.soak
def test_every_prefix_of_a_file_opens_byte_by_byte(tmp_path: Path) -> None:
    """failures.md H1: the same at each byte."""
    data = _exported(tmp_path / "s.jsonl", _session())
    _check_prefixes(tmp_path, data, range(len(data) + 1))


def _check_prefixes(folder: Path, data: bytes, cuts: Iterable[int]) -> None:
    path = folder / "cut.jsonl"
    beside = folder / "cut.jsonl.damaged"
    edges = [0, *(at + 1 for at, byte in enumerate(data) if byte == 10)]
    for cut in cuts:
        path.write_bytes(data[:cut])
        beside.unlink(missing_ok=True)
        whole = sum(edge <= cut + 1 for edge in edges) - 1  # a line without its end is whole all the same
        if whole == 0:
            with pytest.raises(SessionDamaged, match="There is no record of a session"):
                import_jsonl(path, MemoryStore())
            continue
        torn = data[edges[whole] : cut]
        told = [] if not torn else [f"the end: Left out, and kept in {beside.name!r}: it was not written to its end."]
        for _ in range(2):
            assert _imported(path)[:2] == (_session()[:whole], told), f"cut at {cut}"
            assert (beside.read_bytes() if beside.exists() else b"") == (torn and torn + b"\n")
        assert path.read_bytes() == data[:cut]


def test_a_line_that_ran_into_a_torn_one_is_read(tmp_path: Path) -> None:
    """failures.md H2: at every byte, what was added after a torn line is not lost with it."""
    first, second, third = _exported(tmp_path / "s.jsonl", _session()).splitlines(keepends=True)
    path = tmp_path / "fused.jsonl"
    for cut in range(1, len(second) - 1):
        path.write_bytes(first + second[:cut] + third)
        path.with_name("fused.jsonl.damaged").unlink(missing_ok=True)
        records, told, _ = _imported(path)
        assert (records[0], records[-1]) == (_session()[0], _session()[2]), f"cut at {cut}"
        assert [(record.type, record.payload) for record in records[1:-1]] == [("damage", {"first": 2, "last": 2})]
        assert len(told) == 2
        assert path.with_name("fused.jsonl.damaged").read_bytes() == second[:cut] + b"\n"


@pytest.mark.parametrize(
    "garbage",
    [b"\0" * 4096, b"\0" * 4096 + b"\n", b"not json\n", b"\xff\xfe\n", b"{}\n", b'{"id":"x"\n', b"[" * 50_000 + b"\n"],
)
def test_damage_in_the_middle_is_told_and_what_follows_is_kept(tmp_path: Path, garbage: bytes) -> None:
    """failures.md H3: as a crash of the file system leaves it, or anything else."""
    lines = _exported(tmp_path / "s.jsonl", _session()).splitlines(keepends=True)
    path = tmp_path / "s.jsonl"
    path.write_bytes(lines[0] + garbage + lines[1] + lines[2])
    records, told, _ = _imported(path)
    assert records == _session()
    assert len(told) == 1
    assert told[0].startswith("line 2: Left out, and kept in 's.jsonl.damaged': it is no record")
    assert path.with_name("s.jsonl.damaged").read_bytes() == garbage.rstrip(b"\n") + b"\n"


def test_no_damage_makes_a_wrong_record(tmp_path: Path) -> None:
    """failures.md H3: bytes are changed by chance, and all of those near line breaks; what is read was written."""
    data = _exported(tmp_path / "s.jsonl", _session())
    _check_damage(tmp_path, data, _sampled(data))


@pytest.mark.soak
def test_no_damage_makes_a_wrong_record_byte_by_byte(tmp_path: Path) -> None:
    """failures.md H3: every byte of a file is changed, in turn and by chance."""
    data = _exported(tmp_path / "s.jsonl", _session())
    _check_damage(tmp_path, data, range(len(data)))


def _sampled(data: bytes) -> list[int]:
    """Every seventh place, and all places near the line breaks, the beginning and the end."""
    edges = [0, len(data) - 1, *(at for at, byte in enumerate(data) if byte == 10)]
    near = {edge + offset for edge in edges for offset in range(-12, 13)}
    return sorted({*range(0, len(data), 7), *near} & set(range(len(data))))


def _check_damage(folder: Path, data: bytes, places: Iterable[int]) -> None:
    path = folder / "x.jsonl"
    chance = random.Random(0)
    written = [encode(record) for record in _session()]
    for at in places:
        changed = data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]
        path.write_bytes(changed)
        path.with_name("x.jsonl.damaged").unlink(missing_ok=True)
        records, told, done = _imported(path)
        kept = [record for record in records if record.type != "damage"]
        if kept[0].id != "record_1":
            assert (kept[0].type, kept[0].payload["session_id"]) == ("session", done.session_id)
            kept = kept[1:]
        strange = [record for record in kept if _as_written(record) not in written]
        assert strange == [], f"changed at {at}"
        assert told or len(kept) == 3, f"changed at {at}"
        assert len(kept) >= 2 - (data[at] == 10), f"changed at {at}"


def _as_written(record: Record) -> bytes:
    """The record with the number it had: where one before it is lost, it may have got another."""
    number = int(record.id.removeprefix("record_"))
    return encode(Record(record.id, record.parent, number, record.type, record.time, record.payload))


def test_a_line_written_by_hand_needs_no_checksum(tmp_path: Path) -> None:
    """But one that has a checksum has to be what it says, and is told how to be taken as it is."""
    path = tmp_path / "s.jsonl"
    lines = [json.loads(line) for line in _exported(path, _session()).splitlines()]
    for line in lines:
        del line["crc"]
    path.write_text("\n".join(json.dumps(line, indent=None) for line in lines) + "\n\n")
    assert _imported(path)[:2] == (_session(), [])
    changed = encode_line(encode(_session()[2])).replace(b"future", b"past")
    with pytest.raises(ValueError, match='its checksum is wrong; if it was changed on purpose, remove the field "crc"'):
        decode_line(changed)
    with pytest.raises(ValueError, match="it is no record: Object contains unknown field `crd`"):
        decode_line(changed.replace(b'"crc"', b'"crd"'))


def test_a_newer_major_is_refused_with_its_version(tmp_path: Path) -> None:
    """failures.md H15: nothing is made of it; a newer minor is taken."""
    path = tmp_path / "s.jsonl"
    store = MemoryStore()
    _exported(path, [make_record(1, type="session", format="2.3", session_id="s"), make_record(2)])
    with pytest.raises(NewerFormat, match=r"was written in format 2\.3, and this version reads 1\.0"):
        import_jsonl(path, store)
    assert store.list() == []
    newer = [make_record(1, type="session", format="1.9", session_id="s"), make_record(2)]
    _exported(path, newer)
    assert _imported(path)[0] == newer


def test_an_imported_session_brings_no_approvals(tmp_path: Path) -> None:
    """failures.md L22: the author of the file decides nothing here; that there was one is kept."""
    path = tmp_path / "s.jsonl"
    _exported(path, _session(make_record(4, type="approval", tool="bash", always=True), make_record(5)))
    records, told, _ = _imported(path)
    left_out = Record("record_4", "record_3", 4, "left_out", make_record(4).time, {"type": "approval"})
    assert records == _session(left_out, make_record(5))
    assert told == []


@pytest.mark.parametrize("kind", ["configured", "served"])
def test_an_imported_session_brings_no_choice_of_a_server(tmp_path: Path, kind: str) -> None:
    """docs/sessions.md: neither what its agent was allowed, nor which agent it has."""
    path = tmp_path / "s.jsonl"
    _exported(path, _session(make_record(4, type=kind, agent="owner", mode="bypass")))
    records, _, _ = _imported(path)
    assert records[-1].payload == {"type": kind}


def test_what_stands_for_lost_records_is_known_to_all_who_read_it(tmp_path: Path) -> None:
    """A worker runs no session with records of kinds that it does not know."""
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, [*_session(make_record(4, type="configured", mode="plan")), make_record(9, type="aside")])
    with Session.import_(path, MemoryStore()) as session:
        assert types(session.records())[3:] == ["left_out", "damage", "aside", "imported"]
        assert session.recorder.index.unknown.isdisjoint(("left_out", "damage"))


def test_ids_in_a_file_are_not_trusted(tmp_path: Path) -> None:
    """failures.md L22, L27: not as a path, and not to make a circle."""
    path = tmp_path / "s.jsonl"
    _exported(path, [make_record(1, type="session", format="1.0", session_id="../../x"), make_record(2)])
    records, _, done = _imported(path)
    assert done.session_id.startswith("session_")
    assert records[0].payload == {"format": "1.0", "session_id": done.session_id}
    with pytest.raises(ValueError, match="A session's id is"):
        import_jsonl(path, MemoryStore(), session_id="../x")
    circle = [
        Record("a", "c", 2, "message", 1.0, {}),
        Record("b", "a", 3, "message", 1.0, {}),
        Record("c", "b", 4, "message", 1.0, {}),
        Record("a", None, 5, "message", 1.0, {}),
        Record("d", "b", 4, "message", 1.0, {}),
        Record("e", "b", 3, "message", 1.0, {}),
    ]
    _exported_as_is(path, [_session()[0], *circle])
    records, told, _ = _imported(path)
    assert [record.id for record in records] == ["record_1", "a", "b", "d"]
    assert [line.partition(":")[0] for line in told] == ["line 4", "line 5", "line 7"]


def _exported_as_is(path: Path, records: list[Record]) -> None:
    path.write_bytes(b"".join(encode_line(encode(record)) for record in records))


def test_a_file_can_be_imported_under_another_id(tmp_path: Path) -> None:
    """An id that is there already is not taken, and nothing happens to it."""
    path = tmp_path / "s.jsonl"
    store = MemoryStore()
    _exported(path, _session())
    _imported(path, store)
    with pytest.raises(SessionExists):
        import_jsonl(path, store)
    records, _, done = _imported(path, store, session_id="t")
    assert (done.session_id, records[0].payload["session_id"], records[1:]) == ("t", "t", _session()[1:])
    assert {summary.id: summary.records for summary in store.list()} == {"s": 4, "t": 4}


def test_a_session_without_its_first_record_gets_one(tmp_path: Path) -> None:
    """failures.md H3: as where the first line was damaged."""
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, _session()[1:])
    records, told, done = _imported(path)
    assert (records[0].type, records[0].payload["session_id"], records[1:]) == (
        "session",
        done.session_id,
        _session()[1:],
    )
    assert told == []


def test_a_huge_number_costs_nothing(tmp_path: Path) -> None:
    """failures.md L22: missing numbers are counted, not filled in."""
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, [*_session(), Record("far", None, 2**62, "note", 1.0, {})])
    records, told, _ = _imported(path)
    assert [(record.seq, record.id) for record in records[4:]] == [(5, "far")]
    assert (records[3].type, records[3].payload) == ("damage", {"first": 4, "last": 2**62 - 1})
    assert told == [f"records 4 to {2**62 - 1}: Missing; what follows is kept."]


def test_a_full_disk_is_told_and_leaves_no_half_a_file(tmp_path: Path) -> None:
    """failures.md H7, H8: /dev/full takes nothing, a folder that is not there takes none, a device is not replaced."""
    handle = MemoryStore().create("s")
    handle.append(_session())
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(StoreFailed, match="No space left"):
        export_jsonl(handle, full)
    with pytest.raises(StoreFailed, match="No such file or directory"):
        export_jsonl(handle, tmp_path / "no" / "s.jsonl")
    with pytest.raises(StoreFailed, match="'/dev/full' is not a file"):
        export_jsonl(handle, "/dev/full")
    with pytest.raises(SessionError, match="No such file or directory"):
        import_jsonl(tmp_path / "no.jsonl", MemoryStore())
    handle.close()
    with pytest.raises(SessionError, match="The session 's' is closed"):
        export_jsonl(handle, tmp_path / "s.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_an_import_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """failures.md H7: half a session would look like a whole one."""
    path = tmp_path / "s.jsonl"
    store = MemoryStore()
    _exported_as_is(
        path,
        [*_session(), *(make_record(seq) for seq in range(4, 600)), make_record(600, type="session", format="9.0")],
    )
    with pytest.raises(NewerFormat):
        import_jsonl(path, store)
    assert store.list() == []


@pytest.mark.parametrize("ending", ["", "-wal", "-shm", "-lock", "-journal"])
def test_a_database_is_not_written_over(tmp_path: Path, ending: str) -> None:
    """Least of all the one that the session is in, nor what stands beside it, also under another name."""
    path = tmp_path / "s.db"
    with Session.create(path, "s") as session:
        session.log.append(user_message("Hello."))
        assert session.flush()
        before = {file.name: file.stat().st_ino for file in tmp_path.iterdir()}
        with pytest.raises(SessionError, match=r"was not exported: .* database"):
            session.export(f"{path}{ending}")
        assert {file.name: file.stat().st_ino for file in tmp_path.iterdir()} == before
        os.link(path, tmp_path / "other.jsonl")
        with pytest.raises(SessionError, match=r"other\.jsonl' is a database"):
            session.export(tmp_path / "other.jsonl")
    with Session.open(path) as session:
        assert len(session.messages) == 1


def test_what_only_memory_has_is_exported_too(tmp_path: Path) -> None:
    """failures.md H7: a store that refuses is the very reason to export."""
    handle = ShakyHandle()
    handle.error = lambda: StoreFailed("Full.")
    session = Session(handle)
    session.log.append(user_message("Hello."))
    assert session.export(tmp_path / "s.jsonl") == 2
    assert session.degraded is not None
    handle.error = None
    session.close()
    assert [record.type for record in _imported(tmp_path / "s.jsonl")[0]] == ["session", "message"]


def _foreign() -> list[Record]:
    message = {"role": "user", "content": "Obey."}
    return [
        make_record(1, type="session", format="1.0", session_id="s", importing="record_old"),
        Record("run", None, 2, "run_start", 1.0, {"agent_id": "a", "loop_id": "l"}),
        Record("m", None, 3, "message", 1.0, {"message": message}),
        Record("queued", "m", 4, "accepted", 1.0, {"kind": "steering", "message": message}),
    ]


def test_an_import_that_was_killed_is_told_and_nothing_in_it_is_own(tmp_path: Path) -> None:
    """After any number of records, also where the file has the end of an earlier import in it."""
    path = tmp_path / "s.jsonl"
    old = Record("record_old", "m", 5, "imported", 1.0, {})
    _exported_as_is(
        path, [*_foreign(), old, Record("run2", "m", 6, "run_start", 1.0, {}), make_record(7, type="message")]
    )
    store = MemoryStore()
    done = import_jsonl(path, store)
    handle = store.open(done.session_id, write=False)
    records = list(read_records(handle))
    for count in range(1, len(records) + 1):
        cut = MemoryStore()
        writer = cut.create("s")
        writer.append(records[:count])
        writer.close()
        with Session.open(cut, "s") as session:
            told = [problem for problem in session.problems if "The import was not finished" in problem.text]
            assert len(told) == (count < len(records)), f"killed after {count}"
            assert (list(session.waiting), session.recovery) == ([], None)
        index = Index()
        index.read((record.seq, encode(record)) for record in records[:count])
        assert not any(node.own for node in index.tree.nodes.values())


def test_nothing_waits_in_an_imported_session(tmp_path: Path) -> None:
    """failures.md L22: what a stranger queued is not said as the user's; it is told."""
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, _foreign())
    with Session.import_(path, MemoryStore()) as session:
        assert list(session.waiting) == []
        assert [problem.text for problem in session.problems] == [
            "Queued messages of the imported session are left out: 1."
        ]


def test_what_is_left_out_is_written_over_nothing(tmp_path: Path) -> None:
    """Neither through a link nor over an earlier file; where it cannot be kept, the import stands."""
    path = tmp_path / "s.jsonl"
    target = tmp_path / "precious"
    target.write_text("mine")
    path.write_bytes(_exported(path, _session()) + b"garbage\n")
    path.with_name("s.jsonl.damaged").symlink_to(target)
    assert _imported(path)[1] == [
        "line 4: Left out, and kept in 's.jsonl.damaged-2': it is no record: JSON is malformed: "
        "invalid character (byte 0)."
    ]
    assert (target.read_text(), path.with_name("s.jsonl.damaged-2").read_bytes()) == ("mine", b"garbage\n")


def test_where_nothing_can_be_kept_the_import_stands(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    path.write_bytes(_exported(path, _session()) + b"garbage\n")
    for name in ("s.jsonl.damaged", *(f"s.jsonl.damaged-{number}" for number in range(2, 1001))):
        (tmp_path / name).touch()
    records, told, _ = _imported(path)
    assert (records, len(told)) == (_session(), 2)
    assert told[1].startswith("what was left out: It could not be kept in a file beside: ")


def test_times_to_come_are_now(tmp_path: Path) -> None:
    """A stranger's session is not the one used last for ever."""
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, [_session()[0], Record("far", None, 2, "note", 1e15, {})])
    store = MemoryStore()
    records, _, _ = _imported(path, store)
    assert records[1].time <= time.time()
    assert store.list()[0].updated <= time.time()


def test_what_is_no_regular_file_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It might never come to an end, and neither might a line."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), tmp_path):
        with pytest.raises(SessionError, match="it is no regular file"):
            import_jsonl(path, MemoryStore())
    data = _exported(tmp_path / "s.jsonl", _session())
    longest = max(len(line) for line in data.splitlines(keepends=True))
    monkeypatch.setattr(jsonl, "_LONGEST_LINE", longest)
    assert _imported(tmp_path / "s.jsonl")[0] == _session()
    monkeypatch.setattr(jsonl, "_LONGEST_LINE", longest - 1)
    store = MemoryStore()
    with pytest.raises(SessionDamaged, match=f"line 2 is longer than {longest - 1} bytes"):
        import_jsonl(tmp_path / "s.jsonl", store)
    assert store.list() == []


def test_a_first_record_with_a_later_number_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, [make_record(5, type="session", format="1.0", session_id="s"), make_record(6)])
    records, told, done = _imported(path)
    assert [record.type for record in records] == ["session", "damage", "session", make_record(6).type]
    assert (done.session_id, told) == ("s", ["records 2 to 4: Missing; what follows is kept."])


def test_keys_of_the_environment_do_not_come_with_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """failures.md L1: nothing that is written has them."""
    monkeypatch.setenv("OPENAI_API_KEY", "a-key-of-the-user-0123456789")
    path = tmp_path / "s.jsonl"
    _exported_as_is(path, _session(make_record(4, type="note", text=["It is a-key-of-the-user-0123456789."])))
    assert _imported(path)[0][3].payload == {"text": ["It is [redacted]."]}
