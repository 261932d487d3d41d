"""Watchers: never a gap, never an event twice, wherever they leave and come back (S1, S2, S4)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import force_setattr
from tests.rows import each_row
from tests.server.kit import Event, Gate, check_order, make_agent, sort_key

from steersman.provider.streaming.partial import GrowingAnswer
from steersman.server.follower import Answer
from steersman.server.hub import STORE_BYTES, Hub, Item
from steersman.server.live import LiveSession
from steersman.server.position import Position, parse_position
from steersman.server.sessions import Sessions
from steersman.server.watch import Watch, join_updates
from steersman.session import MemoryStore, SqliteStore
from steersman.session.records import Record
from steersman.testing import answer, call, error, text, thinking
from steersman.types.events import MessageStart, MessageUpdate, TurnStart
from steersman.types.messages import AssistantMessage, PartialMessage, user_message
from steersman.types.stream import TextDelta
from steersman.types.wire import encode

pytestmark = pytest.mark.real_time
LONG = " ".join(f"word{number}" for number in range(60))


class Screen:
    """Rebuilds the answer that is arriving from what a watcher reads, and compares it with the whole answer."""

    def __init__(self, *, whole: bool = True) -> None:
        self.whole = whole
        self.text: str | None = None
        self.complete: list[str] = []

    def show(self, event: Event) -> None:
        match event:
            case {"type": "message_start", "message": {"role": "assistant"}}:
                self.text = ""
            case {"type": "message_update", "delta": {"type": "text_delta", "delta": more}}:
                assert self.text is not None, "a delta without a beginning"
                self.text += more
            case {"type": "message_update", "delta": {"type": "reset"}}:
                self.text = ""
            case {"type": "snapshot", "message": {"content": content}}:
                self.text = join_text(content)
            case {"type": "message_end", "message": {"role": "assistant", "content": content}}:
                # A client that was away when the answer ended gets only its record.
                assert self.text is None or join_text(content).startswith(self.text)
                assert self.text in (None, join_text(content)) or not self.whole
                self.text = None
                self.complete.append(join_text(content))
            case _:
                pass


def join_text(content: Sequence[Any]) -> str:
    return "".join(block["text"] for block in content if block["type"] == "text")


def read_items(items: Sequence[Item]) -> list[tuple[str, Event]]:
    return [(str(item.position), json.loads(item.data)) for item in items]


async def collect(hub: Hub, after: Position | None = None, *, ends: int = 1) -> list[tuple[str, Event]]:
    """The events of a hub up to the end of a run."""
    found: list[tuple[str, Event]] = []
    with Watch(hub, after) as watch:
        while ends:
            read = read_items(await watch.read())
            found += read
            ends -= sum(event["type"] == "agent_end" for _, event in read)
    return found


@asynccontextmanager
async def open_live(agent: Any, store: Any = None, **options: Any) -> AsyncGenerator[LiveSession]:
    sessions = Sessions(agent, MemoryStore() if store is None else store, **options)
    try:
        yield await sessions.create(None)
    finally:
        await sessions.close()


def make_script(gate: Gate) -> Any:
    """Text and thinking, a tool call in the middle, a retry after shown text, and more text."""
    return make_agent(
        answer(thinking("Hm. " * 10), LONG, call("wait"), deltas=9, pace=0),
        error("overloaded", text("Void."), after=3),
        LONG.upper(),
        tools=[gate.make_tool()],
    )


@pytest.mark.parametrize("ring_bytes", [4 << 20, 6_000, 1_500])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_client_that_comes_back_at_any_position_misses_nothing(
    kind: str, ring_bytes: int, tmp_path: Any
) -> None:
    """S2: what was seen and what comes after it are the log, whatever is still in memory."""
    gate = Gate()
    store = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "s.db")
    async with open_live(make_script(gate), store, ring_bytes=ring_bytes) as live:
        async with asyncio.TaskGroup() as group:
            reference = group.create_task(collect(live.hub))
            await live.prompt(user_message("Go."))
            await gate.reached.wait()
            gate.opened.set()
        whole = reference.result()
        check_order(whole)
        screen = Screen(whole=ring_bytes == 4 << 20)
        for _, event in whole:
            screen.show(event)
        assert screen.complete == [LONG, LONG.upper()]
        for at in range(len(whole)):
            position, _ = whole[at]
            rest = await collect(live.hub, parse_position(position)) if at < len(whole) - 1 else []
            records = [place for place, _ in whole[at + 1 :] if "." not in place]
            assert [place for place, _ in rest if "." not in place] == records
            check_order([whole[at], *rest])
            if ring_bytes == 4 << 20:
                assert rest == whole[at + 1 :]


@pytest.mark.parametrize("ring_bytes", [4 << 20, 2_000])
async def test_a_watcher_that_comes_in_the_middle_of_an_answer_sees_all_of_it(ring_bytes: int) -> None:
    """S2: from memory, or with one snapshot of the answer so far."""
    has_room = ring_bytes == 4 << 20
    # On a busy machine an answer may be saved as a whole before a watcher comes: then another one is watched.
    for _ in range(100):
        late = await watch_an_answer(ring_bytes, whole=has_room)
        snapshots = [event for events in late for _, event in events if event["type"] == "snapshot"]
        assert not (snapshots and has_room)
        if late and (snapshots or has_room):
            return
    raise AssertionError("No watcher came in the middle of an answer.")


async def watch_an_answer(ring_bytes: int, *, whole: bool) -> list[list[tuple[str, Event]]]:
    """The events of the watchers that came late; each of them has seen the whole answer."""
    gate = Gate()
    long = answer(LONG, call("wait"), deltas=60, pace=0)
    agent = make_agent(long, "End.", tools=[gate.make_tool()])
    async with open_live(agent, ring_bytes=ring_bytes) as live, asyncio.TaskGroup() as group:
        first = group.create_task(collect(live.hub))
        await live.prompt(user_message("Go."))
        late = await start_in_the_middle(live.hub, group)
        gate.opened.set()
    for task in (first, *late):
        screen = Screen(whole=whole)
        for _, event in task.result():
            screen.show(event)
        assert screen.complete == [LONG, "End."]
        check_order(task.result())
    return [task.result() for task in late]


async def start_in_the_middle(hub: Hub, group: asyncio.TaskGroup) -> list[asyncio.Task[list[tuple[str, Event]]]]:
    """Watchers from the start, one at each of the next shown events, until the answer is complete."""
    late: list[asyncio.Task[list[tuple[str, Event]]]] = []
    with Watch(hub, hub.position) as watch:
        while True:
            for _, event in read_items(await watch.read()):
                if event["type"] == "message_end" and event["message"]["role"] == "assistant":
                    return late
            late.append(group.create_task(collect(hub)))


async def test_events_wait_for_the_record_they_follow(tmp_path: Path) -> None:
    """S1: a position that was shown still exists after a crash, so nothing is shown before the store has its record."""
    store = SqliteStore(tmp_path / "s.db")
    async with open_live(make_agent("Hello."), store) as live:
        await live.prompt(user_message("Hi"))
        shown: list[tuple[str, Event]] = []
        with Watch(live.hub, None) as watch:
            while not shown or shown[-1][1]["type"] != "agent_end":
                shown += read_items(await watch.read())
                with closing(store.open(live.session.id, write=False)) as saved:
                    assert sort_key(shown[-1][0])[0] <= saved.last_seq


async def test_a_watcher_that_is_behind_gets_joined_deltas() -> None:
    """S4: neighbouring deltas of one block become one; nothing of the text is lost."""
    async with open_live(make_agent(answer(thinking(LONG), LONG, deltas=60), tools=())) as live:
        await live.prompt(user_message("Hi"))
        await live.wait_until_idle()
        await live.session.save()
        items = list(live.hub.ring)
        joined = join_updates(items)
    assert len(joined) < len(items) / 4
    assert joined[-1] is items[-1]
    for found in (items, joined):
        screen = Screen()
        for _, event in read_items(found):
            screen.show(event)
        assert screen.complete == [LONG]


async def test_a_watcher_reads_so_many_bytes_of_the_log_at_once() -> None:
    """S4: memory per watcher is bounded, also where the records are large; all of them come."""
    size = STORE_BYTES // 4
    async with open_live(make_agent(*["x" * size] * 8), ring_bytes=1_000) as live:
        for _ in range(8):
            await live.prompt(user_message("Go on."))
            await live.wait_until_idle()
        await live.session.save()
        found: list[int] = []
        with Watch(live.hub) as watch:
            while watch.position.record < live.hub.last_record:
                items = await watch.read()
                assert sum(len(item.data) for item in items) < STORE_BYTES + 2 * size
                found += [item.position.record for item in items if item.is_record]
    assert found == list(range(1, live.hub.last_record + 1))


async def test_a_position_past_the_end_is_refused() -> None:
    async with open_live(make_agent("Hello.")) as live:
        await live.prompt(user_message("Hi"))
        await live.wait_until_idle()
        await live.session.save()
        with pytest.raises(ValueError, match="past the end"):
            Watch(live.hub, Position(live.hub.last_record + 1))
        Watch(live.hub, Position(live.hub.last_record, 99))


@each_row("wrong", ["", "x", "-1", "1.", ".1", "1.2.3", "1e3", " 1", "\u0661", "9" * 19])
def test_a_position_is_a_number_or_two(wrong: str) -> None:
    with pytest.raises(ValueError, match="A position is"):
        parse_position(wrong)


def test_positions_are_ordered_and_read_back() -> None:
    places = [Position(1), Position(1, 0), Position(1, 1), Position(1, 10), Position(2)]
    assert sorted(reversed(places)) == places
    assert [parse_position(str(place)) for place in places] == places


async def test_a_hub_that_is_about_to_be_used_is_not_forgotten() -> None:
    """S2: a watcher or a run that comes while idle sessions are closed has the same hub as those who come later."""
    sessions = Sessions(make_agent("Hello."), MemoryStore())
    creating = asyncio.create_task(sessions.create(None))
    while not sessions.hubs:
        await asyncio.to_thread(int)
    await sessions.close_idle()
    live = await creating
    id = live.session.id
    kept = sessions.hubs.get(id)
    await sessions.close_idle()

    async def watch() -> Hub:
        hub = await sessions.find_hub(None, id)
        Watch(hub).__enter__()
        return hub

    await sessions.find_hub(None, id)
    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await sessions.close_idle()
    found = await watching
    known = sessions.hubs.get(id)
    await sessions.close()
    assert kept is live.hub
    assert known is found


async def test_a_watcher_that_comes_while_the_last_one_leaves_sees_what_happens_elsewhere(tmp_path: Path) -> None:
    """S2, U5: what follows the session in another process stays open for it."""
    store = SqliteStore(tmp_path / "s.db")
    there, here = Sessions(make_agent(answer(LONG, deltas=9)), store), Sessions(make_agent(), store)
    live = await there.create(None)
    id = live.session.id
    with Watch(await here.find_hub(None, id)):
        coming = asyncio.create_task(here.find_hub(None, id))
        await asyncio.sleep(0)
    hub = await coming
    seen = asyncio.create_task(collect(hub))
    async with asyncio.timeout(20):
        await live.prompt(user_message("Go."))
        events = await seen
    await here.close()
    await there.close()
    check_order(events)
    screen = Screen(whole=False)
    for _, event in events:
        screen.show(event)
    assert screen.complete == [LONG]


async def test_a_watcher_gets_the_beginning_of_an_answer_in_which_the_ring_begins() -> None:
    """S2, S4: a large record came in the middle of the answer, and the ring begins right after it."""
    store = MemoryStore()
    handle = store.create("s")
    hub = Hub("s", store, ring_bytes=4_000)
    deltas: list[Any] = [TextDelta(word) for word in ("One ", "two ", "three ", "four ")]
    answer_so_far = GrowingAnswer(deltas, PartialMessage())
    updates = [MessageUpdate("loop", number, 0.0, delta) for number, delta in enumerate(deltas, start=2)]
    for count, update in enumerate(updates, start=1):
        force_setattr(update, "_source", (answer_so_far.read, update.seq - count))
    hub.add_event(MessageStart("loop", 1, 0.0, AssistantMessage()))
    for update in updates[:2]:
        hub.add_event(update)
    handle.append([Record("r", None, 1, "note", 0.0, {"text": "x" * 4_000})])
    await hub.refresh()
    assert (hub.floor, hub.ring) == (Position(1), [])
    for update in updates[2:]:
        hub.add_event(update)
    screen = Screen()
    with Watch(hub) as watch:
        while watch.position < hub.position:
            for _, event in read_items(await watch.read()):
                screen.show(event)
    assert screen.text == "One two three four "
    handle.close()


async def test_nothing_of_a_run_is_shown_once_its_session_was_taken_over(tmp_path: Path) -> None:
    """durable.md U3: it is cancelled, and what it still does is not in the log of the new owner."""
    gate = Gate()
    store = SqliteStore(tmp_path / "s.db")
    async with open_live(make_agent(answer(call("wait")), tools=[gate.make_tool()]), store) as live:
        await live.prompt(user_message("Go."))
        await gate.reached.wait()
        await live.session.save()
        with Watch(live.hub) as watch:
            while watch.position < live.hub.position or live.hub.last_record < live.session.recorder.journal.seq:  # pyright: ignore[reportOptionalMemberAccess]  # it is open for writing
                await watch.read()
        before = live.hub.position
        owner = await asyncio.to_thread(store.take_over, live.session.id)
        await live.wait_until_idle()
        assert live.session.taken is not None
        assert live.hub.position == before
        first = owner.last_seq + 1
        owner.append([Record(f"r{seq}", None, seq, "note", 0.0, {}) for seq in range(first, first + 9)])
        await live.hub.refresh()
        shown = [item.position for item in live.hub.ring if item.position > before]
        assert shown == [Position(seq) for seq in range(first, first + 9)]
        owner.close()


@pytest.mark.parametrize("is_over", [False, True])
@pytest.mark.parametrize("is_ahead", [False, True])
async def test_a_watcher_from_another_server_gets_no_text_twice(is_ahead: bool, is_over: bool) -> None:
    """S2: to a server that does not run the session deltas come joined, and a position may be inside of one of them."""
    hub, head = Hub("s", MemoryStore()), PartialMessage(model="m", provider="p", timestamp=0)
    hub.add_records([Record("r1", None, 1, "run_start", 0, {"loop_id": "l"})])
    growing = Answer(head)

    def show(number: int, words: str) -> None:
        event = MessageUpdate("l", 1, 0, TextDelta(words))
        growing.add(event)
        hub.show_piece(Position(1, number), encode(event), event)

    show(2, "one two ")
    with ExitStack() as stack:
        watch = stack.enter_context(Watch(hub, Position(1, 3))) if is_ahead else None
        show(4, "three four ")
        if is_over:
            hub.add_records([Record("r2", None, 2, "message", 0, {"role": "user", "content": "Done."})])
        watch = watch or stack.enter_context(Watch(hub, Position(1, 3)))
        found = read_items(await watch.read())
    if is_over:
        assert [position for position, _ in found] == ["2"]
    else:
        [(position, event)] = found
        assert (position, event["type"]) == ("1.4", "snapshot")
        assert join_text(event["message"]["content"]) == "one two three four "


async def test_a_watcher_gets_the_start_of_an_answer_that_has_no_text_yet() -> None:
    """S2: a model that thinks before its first word, and a watcher that is behind the ring."""
    store = MemoryStore()
    handle = store.create("s")
    hub = Hub("s", store, ring_bytes=4_000)
    handle.append([Record("r1", None, 1, "note", 0.0, {})])
    await hub.refresh()
    for _ in range(40):
        hub.add_event(TurnStart("loop", 1, 0.0, 1, "user"))
    assert hub.floor.number > 0
    hub.add_event(MessageStart("loop", 1, 0.0, AssistantMessage()))
    found: list[tuple[str, Event]] = []
    async with asyncio.timeout(5):
        with Watch(hub) as watch:
            while watch.position < hub.position:
                found += read_items(await watch.read())
    assert found[-1][1]["type"] == "message_start"
    handle.close()
