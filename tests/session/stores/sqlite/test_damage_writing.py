"""Damage that a reader does not see, because SQLite looks there only to write: the file is mended by the write."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

import pytest
from tests.session.snapshots import NAME, Snapshot, appended, contents, found, laid_out
from tests.session.stores.sqlite.test_sqlite_failures import run_child

from steersman.session.records import Record
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import StoreFailed, read_records
from steersman.testing.store_checks import make_record

PAGE = 4096
MALFORMED = (
    "the file: The file was damaged (database disk image is malformed). What SQLite can still read was copied to a "
    f"fresh file; the damaged one is kept as '{NAME}.damaged-1'. To look for more in it, use "
    f"`sqlite3 {NAME}.damaged-1 .recover`."
)
NO_ROOM = """
import logging
logging.disable()
handle = store.open("a")
last = handle.last_seq
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), hard))
print(attempt(handle, last + 1))
print(attempt(handle, last + 1))
print(sorted(other.name for other in path.parent.iterdir()), len(list(read_records(handle))) == last)
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(attempt(handle, last + 1, last + 2))
print(len(list(read_records(handle))) == last + 2, handle.problems[0].where)
handle.close()
"""


def _page_of(data: bytes, table: str, key: int) -> int:
    """Where the leaf of a table begins that has the last row up to a key."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    at = (page - 1) * PAGE
    while data[at] == 5:
        (cells,) = struct.unpack_from(">H", data, at + 3)
        (page,) = struct.unpack_from(">I", data, at + 8)
        for cell in reversed(struct.unpack_from(f">{cells}H", data, at + 12)):
            child, *rest = struct.unpack_from(">I9B", data, at + cell)
            page = child if _varint(rest) >= key else page
        at = (page - 1) * PAGE
    return at


def _varint(rest: list[int]) -> int:
    value = 0
    for byte in rest[:8]:
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value
    raise AssertionError("no key is so long")


def _tail(snapshot: Snapshot, name: str) -> int:
    """Where the page begins to which the next record of a session will be added."""
    return _page_of(snapshot.files[NAME], "records", ("ab".index(name) + 1) << 32 | len(snapshot.records[name]))


def _flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def _unnoticed(snapshot: Snapshot, name: str = "a") -> bytes:
    """The file, with a page that begins its free space where there is none."""
    return _flipped(snapshot.files[NAME], _tail(snapshot, name) + 1, 7)


def test_damage_that_only_a_write_sees_is_mended_by_the_write(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: the file opens without a word, and yet nothing could be written to it for ever."""
    data = _unnoticed(ended)
    store = laid_out(folder / "x", {NAME: data})
    assert found(store, "a") == (ended.records["a"], [])
    handle = store.open("a")
    later = [make_record(handle.last_seq + 1, later=True), make_record(handle.last_seq + 2, later=True)]
    handle.append(later[:1])
    assert [f"{problem.where}: {problem.text}" for problem in handle.problems] == [MALFORMED]
    assert list(read_records(handle)) == [*ended.records["a"], *later[:1]]
    handle.append(later[1:])
    handle.close()
    assert found(store, "a") == ([*ended.records["a"], *later], [MALFORMED])
    assert found(store, "b") == (ended.records["b"], [MALFORMED])
    left = contents(folder / "x")
    assert left.pop(f"{NAME}.damaged-1") == data
    assert list(left) == [NAME]


@pytest.mark.parametrize("name", ["a", "b"])
@pytest.mark.parametrize("words", [30, 2_000])
def test_a_row_that_a_damaged_page_lets_sqlite_write_over_is_missed(folder: Path, name: str, words: int) -> None:
    """failures.md H3: whatever a page says about its free space, nothing wrong is read and each loss is told."""
    snapshot = _in_turns(folder / "turns", words)
    data = snapshot.files[NAME]
    page = _tail(snapshot, name)
    (free,) = struct.unpack_from(">H", data, page + 1)
    places = [page + 1, page + 2, page + 5, page + 6, page + 7, *(page + free + n for n in range(4 if free else 0))]
    untouched = 0
    for at in places:
        for bit in range(8):
            store = laid_out(folder / "x", {NAME: _flipped(data, at, bit)})
            later = appended(store, name)
            written = {**snapshot.records, name: [*snapshot.records[name], later]}
            whole = _check_losses(store, written, f"bit {bit} of {at - page}")
            assert whole == _check_losses(store, written, "the second time")
            untouched += whole
    assert untouched > len(places) * 8


def _check_losses(store: SqliteStore, written: dict[str, list[Record]], how: str) -> int:
    """How many sessions are whole; of the others what is missing is told, and nothing that was not written is there."""
    whole = 0
    for name, records in written.items():
        kept, told = found(store, name)
        assert kept == [record for record in records if record in kept], how
        assert told or kept == records, how
        whole += kept == records
    return whole


def _in_turns(folder: Path, words: int) -> Snapshot:
    """Two sessions of which both have rows in some pages."""
    store = laid_out(folder, {})
    handles = {name: store.create(name) for name in ("a", "b")}
    records = {name: [make_record(seq, text=f"{name} " * words) for seq in range(1, 15)] for name in handles}
    for seq in range(14):
        for name, handle in handles.items():
            handle.append(records[name][seq : seq + 1])
    for handle in handles.values():
        handle.close()
    return Snapshot(contents(folder), records, [])


@pytest.mark.parametrize("byte", [1, 2, 5, 6])
def test_no_session_is_written_over_another(folder: Path, ended: Snapshot, byte: int) -> None:
    """failures.md H3: the rows of sessions lie beside each other too. All records stay; a lost title is told."""
    data = ended.files[NAME]
    for bit in range(8):
        store = laid_out(folder / "x", {NAME: _flipped(data, _page_of(data, "sessions", 1) + byte, bit)})
        handle = store.open("a")
        handle.set_title("A long title, for which there is no room where the row was. " * 3)
        handle.close()
        store.create("c").close()
        assert {id: found(store, id)[0] for id in ("a", "b")} == ended.records
        titles = {summary.id: summary.title[:6] for summary in store.list()}
        if titles != {"a": "A long", "b": "", "c": ""}:
            assert titles.items() <= {"a": "", "b": "", "c": ""}.items() | {"a": "A long"}.items(), f"bit {bit}"
            assert "The file was damaged" in " ".join(found(store, "a")[1]), f"bit {bit}"


def test_what_a_page_that_is_not_free_costs_is_told(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: the pages of a deleted session are used again, and one of the list is not free."""
    data = _with_free_pages(folder / "free", ended)
    (trunk,) = struct.unpack_from(">I", data, 32)
    places = struct.unpack_from(">I", data, (trunk - 1) * PAGE + 4)
    listed = (trunk - 1) * PAGE + 8 + 4 * (places[0] - 1)
    used = _tail(ended, "b") // PAGE + 1
    store = laid_out(folder / "x", {NAME: data[:listed] + struct.pack(">I", used) + data[listed + 4 :]})
    handle = store.open("a")
    later = [make_record(handle.last_seq + 1 + n, text="word " * 600) for n in range(40)]
    for record in later:
        handle.append([record])
    handle.close()
    _check_losses(store, {**ended.records, "a": [*ended.records["a"], *later]}, "a page of the list of free ones")


def _with_free_pages(folder: Path, snapshot: Snapshot) -> bytes:
    store = laid_out(folder, snapshot.files)
    handle = store.create("c")
    handle.append([make_record(seq, text="word " * 600) for seq in range(1, 31)])
    handle.close()
    store.delete("c")
    return contents(folder)[NAME]


def test_a_deletion_spoils_no_other_session(folder: Path, ended: Snapshot) -> None:
    """failures.md H3: it meets the same damage, and is made in the file that was mended."""
    store = laid_out(folder / "x", {NAME: _unnoticed(ended)})
    store.delete("a")
    assert [summary.id for summary in store.list()] == ["b"]
    assert found(store, "b") == (ended.records["b"], [MALFORMED])


def test_a_file_that_others_use_is_mended_once_they_are_done(folder: Path, ended: Snapshot) -> None:
    """failures.md H3, H5: until then the write is refused, and nothing of the file is changed."""
    store = laid_out(folder / "x", {NAME: _unnoticed(ended)})
    before = contents(folder / "x")
    reader = store.open("b", write=False)
    handle = store.open("a")
    later = make_record(handle.last_seq + 1, later=True)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="malformed, and others use the file: it is rescued once they have"):
            handle.append([later])
        assert list(read_records(handle)) == ended.records["a"]
        assert list(read_records(reader)) == ended.records["b"]
    assert contents(folder / "x") == before
    reader.close()
    handle.append([later])
    handle.close()
    assert found(store, "a")[0] == [*ended.records["a"], later]


def test_who_is_reading_while_the_file_is_mended_reads_on(folder: Path) -> None:
    """failures.md H3: the records that follow come from the fresh file."""
    store = laid_out(folder / "long", {})
    records = {name: [make_record(seq, text="word " * 20) for seq in range(1, 601)] for name in ("a", "b")}
    for name, whole in records.items():
        handle = store.create(name)
        handle.append(whole)
        handle.close()
    snapshot = Snapshot(contents(folder / "long"), records, [])
    store = laid_out(folder / "x", {NAME: _unnoticed(snapshot)})
    handle = store.open("a")
    reading = read_records(handle)
    some = [next(reading) for _ in range(3)]
    later = make_record(601, later=True)
    handle.append([later])
    assert handle.problems != []
    assert [*some, *reading] == [*records["a"], later]
    handle.close()


def test_a_file_that_breaks_while_it_is_open_keeps_the_session_as_its_writer_knows_it(
    folder: Path, ended: Snapshot
) -> None:
    """failures.md H3: neither its name nor its last number is found again in a file that lost the row."""
    store = laid_out(folder / "x", ended.files)
    handle = store.open("a")
    handle.set_title("Mine")
    appended(store, "b")
    with closing(sqlite3.connect(store.path)) as connection:
        assert connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() == (0, 0, 0)
    data = store.path.read_bytes()
    with store.path.open("r+b") as file:
        file.seek(_page_of(data, "sessions", 1))
        file.write(bytes(PAGE))
    later = make_record(handle.last_seq + 1, later=True)
    handle.append([later])
    handle.close()
    assert found(store, "a")[0] == [*ended.records["a"], later]
    assert {summary.id: summary.title for summary in store.list()} == {"a": "Mine", "b": ""}
    assert found(store, "b")[0][:-1] == ended.records["b"]


def test_a_file_that_there_is_no_room_to_copy_is_mended_when_there_is(folder: Path, ended: Snapshot) -> None:
    """failures.md H3, H7: meanwhile it can be read, and half copies of it do not pile up."""
    data = _with_free_pages(folder / "free", ended)
    at = _tail(ended, "a") + 1
    store = laid_out(folder / "x", {NAME: _flipped(data, at, 7)})
    refused, again, names, kept, went_on = run_child(NO_ROOM, store.path, len(data) - PAGE)
    assert refused == again == "The session 'a' could not be written: File too large."
    assert names == f"['{NAME}', '{NAME}-lock', '{NAME}-shm', '{NAME}-wal'] True"
    assert (kept, went_on) == ("kept", "True the file")
    assert (folder / "x" / f"{NAME}.damaged-1").read_bytes() == _flipped(data, at, 7)


def test_a_file_that_was_written_over_is_left_alone_until_it_is_back(folder: Path, ended: Snapshot) -> None:
    """failures.md H8: where nothing of a session is left, the file may belong to another program by now."""
    store = laid_out(folder / "x", ended.files)
    handle = store.open("a")
    appended(store, "b")
    with closing(sqlite3.connect(store.path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = store.path.read_bytes()
    diary = b"Dear diary,\n" * 10_000
    store.path.write_bytes(diary)
    later = make_record(handle.last_seq + 1, later=True)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="The session 'a' could not be written: file is not a database"):
            handle.append([later])
    assert contents(folder / "x") == {NAME: diary}
    store.path.write_bytes(data)
    handle.append([later])
    handle.close()
    assert found(store, "a")[0] == [*ended.records["a"], later]
