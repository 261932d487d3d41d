"""The conformance checks of a store of sessions.

    def stores(name: str) -> Store:
        return MyStore(...)      # a store of this name, empty at first; the same name twice is the same place

    for check in store_checks():
        check(stores)

Each check is a function of such a factory and fails with an `AssertionError` that says what was wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from steersman.session.records import Record
from steersman.session.stores.store import (
    Handle,
    SessionBusy,
    SessionError,
    SessionExists,
    SessionNotFound,
    Store,
    read_records,
)

Stores: TypeAlias = Callable[[str], Store]
StoreCheck: TypeAlias = Callable[[Stores], None]

_HARD: Sequence[Any] = (
    "two\nlines\r\n and a NUL \0",
    "line separators \u2028\u2029\x85\v\f",
    "ÄÖÜ 漢字 👩‍👩‍👧",
    "quotes \"'\\ and {braces}",
    *(0, -1, 2**63 - 1, 1.5e300, True, None, [], {}),
    [[[{"deep": [1, {"": None}]}]]],
    "long " * 100_000,
)
_BAD_IDS = ("", ".", "..", "../../x", "a/b", "a\\b", "a\0b", "a b", "ü", "-a", "a\n", "x" * 129)


def store_checks() -> list[StoreCheck]:
    """Every check, in a sensible order; their names are sentences."""
    return [
        a_new_session_is_empty,
        what_was_appended_is_read_back,
        reading_goes_on_after_a_number,
        unknown_types_are_kept,
        the_order_is_that_of_the_numbers,
        numbers_have_no_gaps_and_no_doubles,
        a_group_is_kept_whole_or_not_at_all,
        appending_nothing_is_nothing,
        a_session_is_there_after_closing,
        sessions_do_not_mix,
        a_session_is_made_once,
        a_session_that_is_not_there_is_not_found,
        ids_cannot_mean_a_path,
        there_is_one_writer,
        readers_hold_up_no_writer,
        a_reader_cannot_write,
        one_thread_reads_while_another_writes,
        a_list_shows_the_last_used_first,
        a_session_is_called_by_the_first_words_of_the_user,
        a_deleted_session_is_gone,
        a_session_in_use_is_not_deleted,
        closing_twice_is_nothing,
        a_closed_session_takes_nothing,
    ]


def make_record(seq: int, *, type: str = "note", time: float | None = None, **payload: Any) -> Record:
    """Make a record for a check."""
    when = 1_700_000_000.0 + seq if time is None else time
    return Record(f"record_{seq}", None if seq == 1 else f"record_{seq - 1}", seq, type, when, payload)


def a_new_session_is_empty(stores: Stores) -> None:
    """It has a writer, no records and no problems."""
    handle = stores("new").create("s")
    found = (handle.session_id, handle.writable, handle.last_seq, list(handle.lines()), list(handle.problems))
    handle.close()
    assert found == ("s", True, 0, [], []), f"Expected an empty session, got {found!r}."


def what_was_appended_is_read_back(stores: Stores) -> None:
    """Whatever is in a record, it comes back equal, and its line has no line break inside."""
    records = [make_record(seq, value=value, keys={str(value): seq}) for seq, value in enumerate(_HARD, 1)]
    handle = stores("back").create("s")
    handle.append(records)
    _check_same(list(read_records(handle)), records)
    broken = [seq for seq, line in handle.lines() if b"\n" in line]
    handle.close()
    assert not broken, f"Expected one line for each record, but {broken} have a line break inside."


def reading_goes_on_after_a_number(stores: Stores) -> None:
    """From any number on, and over any number of groups."""
    records = [make_record(seq) for seq in range(1, 601)]
    handle = stores("after").create("s")
    for start in range(0, 600, 100):
        handle.append(records[start : start + 100])
    for after in (0, 1, 255, 256, 257, 599, 600, 601):
        _check_same(list(read_records(handle, after)), records[after:])
    assert [seq for seq, _ in handle.lines(598)] == [599, 600], "Expected lines to come with their numbers."
    handle.close()


def unknown_types_are_kept(stores: Stores) -> None:
    """A record of a later version stays as it is."""
    records = [make_record(1, type="session", format="1.0"), make_record(2, type="from the future", anything=[1, 2])]
    handle = stores("types").create("s")
    handle.append(records)
    _check_same(list(read_records(handle)), records)
    handle.close()


def the_order_is_that_of_the_numbers(stores: Stores) -> None:
    """A clock that goes backwards changes nothing."""
    records = [make_record(seq, time=1_000.0 - seq) for seq in range(1, 6)]
    handle = stores("order").create("s")
    for record in records:
        handle.append([record])
    _check_same(list(read_records(handle)), records)
    handle.close()


def numbers_have_no_gaps_and_no_doubles(stores: Stores) -> None:
    """A record that does not go on from the last is refused."""
    handle = stores("numbers").create("s")
    handle.append([make_record(1), make_record(2)])
    for seqs in ((2,), (4,), (0,), (3, 3), (3, 5)):
        wrong = [make_record(seq) for seq in seqs]
        _check_raises(ValueError, lambda wrong=wrong: handle.append(wrong))
    _check_same(list(read_records(handle)), [make_record(1), make_record(2)])
    handle.append([make_record(3)])
    _check_same(list(read_records(handle)), [make_record(1), make_record(2), make_record(3)])
    handle.close()


def a_group_is_kept_whole_or_not_at_all(stores: Stores) -> None:
    """What cannot be written takes the rest of its group with it, and the next group is fine."""
    handle = stores("group").create("s")
    _check_raises(Exception, lambda: handle.append([make_record(1), make_record(2, value=object())]))
    assert handle.last_seq == 0, f"Expected nothing to be kept, got {handle.last_seq} records."
    handle.append([make_record(1), make_record(2)])
    _check_same(list(read_records(handle)), [make_record(1), make_record(2)])
    handle.close()


def appending_nothing_is_nothing(stores: Stores) -> None:
    """An empty group is no record."""
    handle = stores("nothing").create("s")
    handle.append([])
    assert (handle.last_seq, list(handle.lines())) == (0, []), "Expected no record."
    handle.close()


def a_session_is_there_after_closing(stores: Stores) -> None:
    """Another store of the same place finds it, and goes on with it."""
    handle = stores("closing").create("s")
    handle.append([make_record(1), make_record(2)])
    handle.close()
    handle = stores("closing").open("s")
    assert (handle.last_seq, list(handle.problems)) == (2, []), f"Expected two records, got {handle.last_seq}."
    handle.append([make_record(3)])
    handle.close()
    handle = stores("closing").open("s", write=False)
    _check_same(list(read_records(handle)), [make_record(1), make_record(2), make_record(3)])
    handle.close()


def sessions_do_not_mix(stores: Stores) -> None:
    """Sessions written in turns give what each would have given alone."""
    store = stores("mix")
    names = [f"s-{number}_{number}.x" for number in range(5)]
    handles = [store.create(name) for name in names]
    for seq in range(1, 11):
        for handle in handles:
            handle.append([make_record(seq, session=handle.session_id)])
    for handle in handles:
        _check_same(list(read_records(handle)), [make_record(seq, session=handle.session_id) for seq in range(1, 11)])
        handle.close()


def a_session_is_made_once(stores: Stores) -> None:
    """Whether it is open or closed, and however it is spelt: case counts."""
    store = stores("once")
    handle = store.create("s", first=True)
    handle.append([make_record(1)])
    _check_raises(SessionExists, lambda: store.create("s"))
    _check_raises(SessionExists, lambda: stores("once").create("t", first=True))
    handle.close()
    _check_raises(SessionExists, lambda: store.create("s"))
    store.create("S").close()
    handle = store.open("s")
    _check_same(list(read_records(handle)), [make_record(1)])
    handle.close()


def a_session_that_is_not_there_is_not_found(stores: Stores) -> None:
    """Neither in a store that has none, nor in one that has another; looking makes nothing."""
    store = stores("missing")
    assert list(store.list()) == [], "Expected a new store to be empty."
    for _ in range(2):
        _check_raises(SessionNotFound, lambda: store.open("s"))
        _check_raises(SessionNotFound, lambda: store.open("s", write=False))
        _check_raises(SessionNotFound, lambda: store.delete("s"))
        if not store.list():
            store.create("other").close()
    assert [summary.id for summary in store.list()] == ["other"], "Expected only what was made."


def ids_cannot_mean_a_path(stores: Stores) -> None:
    """Letters, digits, '_', '-' and '.' are an id, and nothing that a file system could read anything into."""
    store = stores("ids")
    for id in _BAD_IDS:
        for act in (store.create, store.open, store.delete):
            _check_raises(ValueError, lambda act=act, id=id: act(id))
    store.create("x" * 128).close()


def there_is_one_writer(stores: Stores) -> None:
    """A second one is refused, also through another store, until the first is done; another session is free."""
    handle = stores("writer").create("s")
    for store in (stores("writer"), stores("writer")):
        _check_raises(SessionBusy, lambda store=store: store.open("s"))
    other = stores("writer").create("t")
    other.append([make_record(1)])
    other.close()
    handle.append([make_record(1)])
    handle.close()
    stores("writer").open("s").close()


def readers_hold_up_no_writer(stores: Stores) -> None:
    """Any number of them, while one writes; they see what was written since."""
    writer = stores("readers").create("s")
    writer.append([make_record(1)])
    readers = [stores("readers").open("s", write=False) for _ in range(3)]
    for seq in range(2, 5):
        writer.append([make_record(seq)])
        for reader in readers:
            _check_same(list(read_records(reader)), [make_record(number) for number in range(1, seq + 1)])
            assert reader.last_seq == seq, f"Expected a reader to see {seq} records, got {reader.last_seq}."
    # A reader that stopped in the middle does not block either.
    halfway = readers[0].lines()
    next(halfway)
    writer.append([make_record(5)])
    writer.close()
    for reader in readers:
        reader.close()


def a_reader_cannot_write(stores: Stores) -> None:
    """Not even when there is no writer."""
    stores("read").create("s").close()
    reader = stores("read").open("s", write=False)
    assert not reader.writable, "Expected a reader not to be writable."
    _check_raises(SessionBusy, lambda: reader.append([make_record(1)]))
    _check_raises(SessionBusy, lambda: reader.set_title("x"))
    reader.close()


def one_thread_reads_while_another_writes(stores: Stores) -> None:
    """With one handle; a reader sees the records from the first to some record, and never a gap."""
    handle = stores("threads").create("s")
    done = threading.Event()
    wrong: list[str] = []

    def look() -> None:
        while not done.is_set():
            seqs = [seq for seq, _ in handle.lines()]
            if seqs != list(range(1, len(seqs) + 1)):
                wrong.append(f"{seqs}")

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for seq in range(1, 100, 2):
            handle.append([make_record(seq), make_record(seq + 1)])
    finally:
        done.set()
        for reader in readers:
            reader.join()
    _check_same(list(read_records(handle)), [make_record(seq) for seq in range(1, 101)])
    handle.close()
    assert not wrong, f"Expected the records without gaps, got {wrong[0]}."


def a_list_shows_the_last_used_first(stores: Stores) -> None:
    """With how many records each has."""
    store = stores("list")
    for number, name in enumerate(("a", "b", "c")):
        handle = store.create(name)
        handle.append([make_record(seq, time=4e9 + 10 * number) for seq in range(1, number + 2)])
        handle.close()
    handle = store.open("a")
    handle.append([make_record(2, time=4e9 + 100)])
    found = [(summary.id, summary.records, summary.updated) for summary in stores("list").list()]
    handle.close()
    expected = [("a", 2, 4e9 + 100), ("c", 3, 4e9 + 20), ("b", 2, 4e9 + 10)]
    assert found == expected, f"Expected {expected!r}, got {found!r}."


def a_session_is_called_by_the_first_words_of_the_user(stores: Stores) -> None:
    """On one line and not too long, unless it is given a title."""
    store = stores("title")
    handle = store.create("s")
    handle.append([make_record(1, type="session")])
    assert store.list()[0].title == "", "Expected no title before the first message."
    handle.append(
        [
            _make_message_record(2, "assistant", "How can I help?"),
            _make_message_record(3, "user", "  Tidy\n the attic  "),
            _make_message_record(4, "user", "no"),
        ]
    )
    title = store.list()[0].title
    assert title == "Tidy the attic", f"Expected the first words of the user, got {title!r}."
    handle.set_title("Spring cleaning")
    handle.append([_make_message_record(5, "user", "Now the cellar")])
    handle.close()
    title = stores("title").list()[0].title
    assert title == "Spring cleaning", f"Expected the title that was given, got {title!r}."


def a_deleted_session_is_gone(stores: Stores) -> None:
    """And only that one; its id is free again, and nothing of the old comes back."""
    store = stores("deleted")
    for name in ("s", "t"):
        handle = store.create(name)
        handle.append([make_record(1, session=name), make_record(2)])
        handle.close()
    store.delete("s")
    assert [summary.id for summary in store.list()] == ["t"], "Expected only the other one to be left."
    _check_raises(SessionNotFound, lambda: store.open("s"))
    handle = store.create("s")
    assert list(handle.lines()) == [], "Expected nothing of the deleted session to come back."
    handle.append([make_record(1, again=True)])
    handle.close()
    handle = store.open("t")
    _check_same(list(read_records(handle)), [make_record(1, session="t"), make_record(2)])
    handle.close()


def a_session_in_use_is_not_deleted(stores: Stores) -> None:
    """The writer goes on writing."""
    handle = stores("use").create("s")
    _check_raises(SessionBusy, lambda: stores("use").delete("s"))
    handle.append([make_record(1)])
    _check_same(list(read_records(handle)), [make_record(1)])
    handle.close()


def closing_twice_is_nothing(stores: Stores) -> None:
    """And the second time does not release the lock of another handle."""
    handle = stores("twice").create("s")
    handle.close()
    other = stores("twice").open("s")
    handle.close()
    _check_raises(SessionBusy, lambda: stores("twice").open("s"))
    other.close()


def a_closed_session_takes_nothing(stores: Stores) -> None:
    """It says that it is closed."""
    handle = stores("closed").create("s")
    handle.append([make_record(1)])
    handle.close()
    _check_raises(SessionError, lambda: handle.append([make_record(2)]))
    _check_raises(SessionError, lambda: list(handle.lines()))
    handle = stores("closed").open("s")
    _check_same(list(read_records(handle)), [make_record(1)])
    handle.close()


def _make_message_record(seq: int, role: str, text: str) -> Record:
    return make_record(seq, type="message", message={"role": role, "content": [{"type": "text", "text": text}]})


def _check_same(found: list[Record], expected: list[Record]) -> None:
    for number, (left, right) in enumerate(zip(found, expected, strict=False), 1):
        assert left == right, f"Expected {right!r:.200} as number {number}, got {left!r:.200}."
    assert len(found) == len(expected), f"Expected {len(expected)} records, got {len(found)}."


def _check_raises(error: type[Exception], act: Callable[[], Handle | list[Any] | None]) -> None:
    try:
        given = act()
    except error:
        return
    if given is not None and not isinstance(given, list):
        given.close()
    raise AssertionError(f"Expected {error.__name__}, but nothing was wrong with it.")
