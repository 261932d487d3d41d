"""Plays a scenario again and again, killing itself with SIGKILL at one journal operation after the other.

    python -m tests.session.killed FOLDER [--all] SCENARIO ...

Each time a fresh process plays until it is killed; now and then another one goes on and is killed as well. One more
opens what many of them left, goes on to the end and judges what it found. All are forked from this one, which has
everything imported and no thread.
"""

from __future__ import annotations

import asyncio
import gc
import os
import selectors
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit
from zlib import crc32

import msgspec
from tests.session.stage import EFFECTS, IDEMPOTENT, SCENARIOS, Brain, Ledger, Scenario, Stage, effects_of, token_in

from steersman import Agent
from steersman.context.repair import UNKNOWN, repair
from steersman.provider.wires.anthropic import wire as anthropic
from steersman.provider.wires.google import wire as google
from steersman.provider.wires.openai_chat import wire as openai_chat
from steersman.provider.wires.openai_responses import wire as openai_responses
from steersman.provider.wires.protocol import HttpRequest
from steersman.session.records import Record, decode, encode
from steersman.session.session import Session
from steersman.session.stores.sqlite.handle import SqliteHandle
from steersman.session.stores.sqlite.store import SqliteStore
from steersman.session.stores.store import Handle, Problem, SessionNotFound, Store, Summary
from steersman.testing import check_transcript, watch
from steersman.testing.servers import AnthropicServer, GoogleServer, OpenAIChatServer, OpenAIResponsesServer
from steersman.testing.servers.base import Received
from steersman.types.messages import AgentMessage, AssistantMessage, ToolResultMessage
from steersman.types.model import Model, Request, StreamOptions

How = Literal["before", "inside", "after", "before the group", "after the group"]
HOWS: tuple[How, ...] = ("before", "after", "inside", "before the group", "after the group")
NAME = "one"
BATCH = 100  # folders that wait to be judged


@dataclass(frozen=True)
class Point:
    """Where the program dies: at the record or the group of this number."""

    number: int
    how: How


class IdleLoop(asyncio.SelectorEventLoop):
    """Knows when it can get no further by itself."""

    def __init__(self) -> None:
        self.idle = threading.Event()
        super().__init__(_Selector(self))


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: IdleLoop) -> None:
        self._loop = loop
        super().__init__()

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        self._loop.idle.set()
        try:
            return super().select(timeout)
        finally:
            self._loop.idle.clear()


class DeadlyStore:
    """An SQLite file whose writer dies at a certain point."""

    def __init__(self, path: Path, ledger: Ledger, point: Point | None, loop: IdleLoop) -> None:
        self.inner = SqliteStore(path)
        self.ledger = ledger
        self.point = point
        self.loop = loop

    def create(self, session_id: str, /, *, first: bool = False) -> Handle:
        return DeadlyHandle(self.inner.create(session_id, first=first), self)

    def open(self, session_id: str, /, *, write: bool = True) -> Handle:
        return DeadlyHandle(self.inner.open(session_id, write=write), self)

    def list(self) -> Sequence[Summary]:
        return self.inner.list()

    def delete(self, session_id: str, /) -> None:
        self.inner.delete(session_id)


class DeadlyHandle:
    """Writes the records of a group one by one, for a group may end anywhere, and dies when it is time."""

    def __init__(self, inner: SqliteHandle, store: DeadlyStore) -> None:
        self.inner = inner
        self.store = store
        self.groups = 0

    @property
    def session_id(self) -> str:
        return self.inner.session_id

    @property
    def writable(self) -> bool:
        return self.inner.writable

    @property
    def problems(self) -> Sequence[Problem]:
        return self.inner.problems

    @property
    def last_seq(self) -> int:
        return self.inner.last_seq

    def append(self, records: Sequence[Record], /) -> None:
        self.groups += 1
        point = self.store.point
        if point is None or point.how.endswith("group"):
            self._die_if(point == Point(self.groups, "before the group"))
            self._keep(records)
            self._die_if(point == Point(self.groups, "after the group"))
            return
        for record in records:
            self._die_if(point == Point(record.seq, "before"))
            if point == Point(record.seq, "inside"):
                connection = self.inner._access.connection  # pyright: ignore[reportPrivateUsage]
                connection.set_trace_callback(lambda words: self._die_if("COMMIT" in words))
            self._keep([record])
            self._die_if(point == Point(record.seq, "after"), at_once=True)

    def _keep(self, records: Sequence[Record]) -> None:
        self.inner.append(records)
        for record in records:
            self.store.ledger.write("kept", [record.seq, crc32(encode(record))])
        self.store.ledger.write("group", self.groups)

    def _die_if(self, now: bool, *, at_once: bool = False) -> None:
        if now:
            if not at_once:
                # As late as can be: the rest of the program has done all it may do without this being kept.
                self.store.loop.idle.wait(0.1)
            os.kill(os.getpid(), signal.SIGKILL)
            threading.Event().wait()

    def lines(self, after: int = 0, /) -> Iterator[tuple[int, bytes]]:
        return self.inner.lines(after)

    def set_title(self, title: str, /) -> None:
        self.inner.set_title(title)

    def close(self) -> None:
        self.inner.close()


def play(scenario: Scenario, folder: Path, point: Point | None) -> None:
    """Play from the beginning, to the point or to the end."""
    ledger = Ledger(folder / "ledger")
    loop = IdleLoop()
    store = DeadlyStore(folder / "sessions.db", ledger, point, loop)

    async def main() -> None:
        session = Session.create(store, NAME)
        agent = scenario.agent(session, ledger, Brain(scenario.plans, ledger))
        await scenario.play(Stage(agent, session, ledger))
        session.close()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(main())


ORACLES: list[tuple[Any, Any, Model]] = [
    (anthropic.WIRE, AnthropicServer(key="k"), Model("anthropic", "claude-sonnet-4-5", base_url="http://127.0.0.1")),
    (openai_responses.WIRE, OpenAIResponsesServer(key="k"), Model("openai", "gpt-5", base_url="http://127.0.0.1/v1")),
    (openai_chat.WIRE, OpenAIChatServer(key="k"), Model("openai-chat", "gpt-4o", base_url="http://127.0.0.1/v1")),
    (google.WIRE, GoogleServer(key="k"), Model("google", "gemini-2.5-pro", base_url="http://127.0.0.1/v1beta")),
]


def check_oracles(request: Request) -> None:
    """All four strict servers take the request."""
    for wire, server, model in ORACLES:
        fitted = repair(request.messages, provider=model.provider, model=model.id)
        asked = Request(request.system_prompt, fitted, request.tools)
        sent: HttpRequest = wire.request(model, asked, StreamOptions(), "k")
        address = urlsplit(sent.url)
        headers = {name.lower(): value for name, value in sent.headers.items()}
        query = dict(part.split("=", 1) for part in address.query.split("&") if part)
        params = {"model": model.id}
        body = msgspec.json.decode(sent.body)
        refusal = server.validate(Received("POST", address.path, params, query, headers, sent.body, body, 1))
        assert refusal is None, f"{model.provider} refuses the request: {refusal!r}"


class Aftermath:
    """What a killed program left, and what becomes of it."""

    def __init__(self, scenario: Scenario, folder: Path, *, go_on: bool) -> None:
        self.scenario = scenario
        self.path = folder / "sessions.db"
        self.ledger = Ledger(folder / "ledger")
        self.brain = Brain(scenario.plans, self.ledger)
        self.go_on = go_on
        self.effects = effects_of(self.ledger)

    def judge(self) -> None:
        """Open it, go on to the end, and check what must hold."""
        left = self.left()
        if left is None:
            assert not self.ledger.read("kept"), "What was kept is gone."
            assert not self.ledger.read("effect"), "A tool ran before anything was kept."
            return
        self.check_left(left)
        self.check_opening_adds_nothing(left)
        messages = asyncio.run(self.resume(SqliteStore(self.path)))
        self.check_tools(left, messages)
        self.check_end(left, messages)

    def left(self) -> list[bytes] | None:
        """The records as they are on the disk."""
        try:
            handle = SqliteStore(self.path).open(NAME, write=False)
        except SessionNotFound:
            return None
        try:
            assert list(handle.problems) == []
            return [line for _, line in handle.lines()]
        finally:
            handle.close()

    def check_left(self, left: list[bytes]) -> None:
        """failures.md I8, I18: nothing that was acknowledged is lost, and there is no gap."""
        records = [decode(line) for line in left]
        assert [record.seq for record in records] == [*range(1, len(records) + 1)]
        for seq, checksum in self.ledger.read("kept"):
            assert [crc32(line) for line in left[seq - 1 : seq]] == [checksum], f"Record {seq} is not what was kept."
        ids = {record.id for record in records}
        for promised in self.ledger.read("promise"):
            assert ids >= set(promised), "A run had ended, and not all of it was kept."
        intended = {token_in(record.payload["arguments"]) for record in records if record.type == "intent"}
        assert intended >= self.effects.keys(), "A tool ran before its intent was kept."

    def check_opening_adds_nothing(self, left: list[bytes]) -> None:
        """failures.md I8: opening is not changing."""
        session = Session.open(self.path, NAME)
        agent = self.scenario.agent(session, self.ledger, self.brain)
        assert agent.session is session
        assert list(session.problems) == []
        session.close()
        again = self.left()
        assert again is not None
        assert again[: len(left)] == left
        assert [decode(line).type for line in again[len(left) :]] in ([], ["session"])
        left[:] = again

    def go_on_and_die(self, after: int) -> None:
        """Go on with what is left, so many records long, and be killed again."""
        left = self.left()
        if left is not None:
            loop = IdleLoop()
            point = Point(len(left) + after, "after" if after % 2 else "before")
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self.resume(DeadlyStore(self.path, self.ledger, point, loop)))

    async def resume(self, store: Store) -> list[AgentMessage]:
        """Go on until nothing is left to do."""
        session = Session.open(store, NAME)
        agent = self.scenario.agent(session, self.ledger, self.brain)
        witness = watch(agent)
        await self.one_run(agent)
        for _ in range(5):
            if agent.queued.steering or agent.queued.follow_up:
                await agent.continue_()
        await agent.run("Good bye.")
        assert session.degraded is None
        witness.check()
        messages = list(agent.messages)
        check_transcript(messages)
        for request in self.brain.requests:
            check_oracles(request)
        session.close()
        return messages

    async def one_run(self, agent: Agent) -> None:
        if self.go_on:
            try:
                stream = agent.continue_()
            except ValueError:
                pass  # there is nothing to go on with
            else:
                await stream
                return
        await agent.run("And now?")

    def check_tools(self, left: list[bytes], messages: list[AgentMessage]) -> None:
        """failures.md I6: no tool that must not runs twice, what had a result keeps it, and no answer is untrue."""
        total = effects_of(self.ledger)
        for token, times in total.items():
            assert times == 1 or token.split("-")[0] in IDEMPOTENT, f"{token} ran {times} times."
        tokens = {
            call.id: token_in(call.arguments)
            for message in messages
            if isinstance(message, AssistantMessage)
            for call in message.tool_calls
        }
        told = {m.tool_call_id: m for m in messages if isinstance(m, ToolResultMessage)}
        # A user who wants calls to be cancelled does not want them to be run again.
        stopped = any(record.type == "accepted" and record.payload["mode"] == "cancel" for record in map(decode, left))
        for id, result in told.items():
            status = (result.details or {}).get("status")
            token = tokens[id]
            assert status != "not_started" or token not in total, f"{token} ran, and was said not to have started."
            if not result.is_error and token:
                assert token in total, f"{token} never ran, and has a result."
            if result.text == UNKNOWN and self.go_on and not stopped:
                assert token.split("-")[0] not in IDEMPOTENT, f"{token} could have been run again."
        for record in map(decode, left):
            if record.type == "result":
                kept = msgspec.convert(record.payload["message"], ToolResultMessage)
                token = tokens.get(kept.tool_call_id)
                if token in self.effects and kept.tool_call_id in told and token in kept.text:
                    assert total[token] == self.effects[token], f"{token} ran again though it had its result."
                    assert told[kept.tool_call_id].content == kept.content

    def check_end(self, left: list[bytes], messages: list[AgentMessage]) -> None:
        """failures.md I4, I5: what was queued is heard once; what was there before is there still."""
        lines = self.left()
        assert lines is not None
        assert lines[: len(left)] == left
        records = [decode(line) for line in lines]
        assert [record.seq for record in records] == [*range(1, len(records) + 1)]
        said = [_words(record) for record in records if record.type == "message"]
        returned = {record.payload["queue_id"] for record in records if record.type == "returned"}
        accepted = {_words(record) for record in records if record.type == "accepted" and record.id not in returned}
        sure = {words for each in self.ledger.read("sure") for words in each}
        assert {_words(record) for record in records if record.type == "accepted"} >= sure
        for words in self.ledger.read("queue"):
            times = sum(words in each for each in said)
            assert times == 1 if words in accepted else times <= 1, f"{words!r} was heard {times} times."
        for words in self.ledger.read("withdrawn"):
            assert not any(words in each for each in said), f"{words!r} was taken back, and heard."
        for words in self.ledger.read("prompt"):
            assert sum(words in each for each in said) <= 1, f"{words!r} was heard twice."
        session = Session.open(self.path, NAME, write=False)
        assert list(session.log.messages) == messages, "What is read is not what was said."
        assert not session.waiting
        session.close()


def _words(record: Record) -> str:
    content = record.payload["message"]["content"]
    if record.payload["message"]["role"] != "user":
        return ""
    return "".join(block.get("text", "") for block in content)


def apart(work: Callable[[], None]) -> tuple[int, str]:
    """Do this in a forked process; how it ended, and what it said."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            signal.alarm(60)
            work()
            code = 0
        except BaseException:  # noqa: BLE001  # whatever it was, it is told to the parent
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        words = pipe.read().decode()
    return os.waitpid(child, 0)[1], words


def campaign(name: str, folder: Path, *, everywhere: bool) -> int:
    """Kill it everywhere; how many times that was."""
    scenario = SCENARIOS[name]
    ended, words = apart(lambda: play(scenario, fresh(folder), None))
    assert ended == 0, f"{name!r} does not even end by itself: {ended}\n{words}"
    ledger = Ledger(folder / "ledger")
    check_play(scenario, folder, ledger)
    records, groups = len(ledger.read("kept")), len(ledger.read("group"))
    kills = 0
    killed: list[Killed] = []
    for number, (point, go_on) in enumerate(plan(records, groups, everywhere=everywhere)):
        for again_after in (None, 1 + number % 9) if everywhere or number % 10 == 0 else (None,):
            kills += 1
            killed.append(kill(name, folder / str(kills), point, go_on=go_on, again_after=again_after))
        if len(killed) >= BATCH:
            judge_all(scenario, killed)
    judge_all(scenario, killed)
    return kills


def check_play(scenario: Scenario, folder: Path, ledger: Ledger) -> None:
    """By itself the scenario goes as planned: nothing is learned from one that does not."""
    with Session.open(folder / "sessions.db", NAME, write=False) as session:
        ends = {record.payload["end_reason"] for record in session.records() if record.type == "run_end"}
    assert ends == {scenario.ends}, f"The runs ended with {ends}."
    words = {word for plan in scenario.plans.values() for word in plan.replace("|", " ").split()}
    ran = {token.split("-")[0] for token in ledger.read("effect")}
    assert ran == words & EFFECTS - scenario.never, f"Of {words} only {ran} ran."


def plan(records: int, groups: int, *, everywhere: bool) -> Iterator[tuple[Point, bool]]:
    """Where to kill, and whether what is left is gone on with, or spoken to.

    Not everywhere means: around the first and the last record, around every tenth one, and at every twelfth otherwise.
    """
    for how in HOWS:
        last = groups if how.endswith("group") else records
        for number in range(1, last + 1):
            near = number in (1, last) or number % 10 == (6 if how == "before" else 5)
            if everywhere or (near if how in ("before", "after") else number % 12 == 1):
                point = Point(number, how)
                first = how != "after"
                yield point, first
                if everywhere or (how == "before" and number % 9 == 1):
                    yield point, not first


def fresh(folder: Path) -> Path:
    """The folder, empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder


@dataclass(frozen=True)
class Killed:
    """A program that was killed: how, where its files are, and whether it is gone on with."""

    where: str
    folder: Path
    go_on: bool


def kill(name: str, folder: Path, point: Point, *, go_on: bool, again_after: int | None = None) -> Killed:
    """Play and be killed, go on and be killed again if wanted."""
    scenario = SCENARIOS[name]
    fresh(folder)
    where = f"{name!r}, killed {point.how} {point.number}, {'gone on with' if go_on else 'spoken to'}"
    ended, words = apart(lambda: play(scenario, folder, point))
    # Groups fall differently each time: there may be fewer of them than when they were counted.
    assert was_killed(ended) or (point.how.endswith("group") and ended == 0), f"{where}: {ended}\n{words}"
    if again_after is not None:
        where += f", killed again after {again_after}"
        ended, words = apart(lambda: Aftermath(scenario, folder, go_on=go_on).go_on_and_die(again_after))
        assert was_killed(ended) or ended == 0, f"{where}: {ended}\n{words}\n{(folder / 'ledger').read_text()}"
    return Killed(where, folder, go_on)


def judge_all(scenario: Scenario, killed: list[Killed]) -> None:
    """See in another process what each of them left, and remove it; the list is empty afterwards."""

    def judge() -> None:
        for each in killed:
            signal.alarm(60)
            Aftermath(scenario, each.folder, go_on=each.go_on).judge()
            shutil.rmtree(each.folder)

    ended, words = apart(judge)
    for each in killed:  # the first that is still there is the one whose judge ended
        assert not each.folder.exists(), f"{each.where}: {ended}\n{words}\n{(each.folder / 'ledger').read_text()}"
    assert ended == 0, f"{ended}\n{words}"
    killed.clear()


def was_killed(ended: int) -> bool:
    """Whether a process ended by SIGKILL."""
    return os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL


def main() -> None:
    """Print a line for each scenario that held, with how often it was killed."""
    folder, *names = sys.argv[1:]
    for module in ("steersman.agent.session_link", "steersman.loop.resume"):
        import_module(module)  # else each of the forked processes imports it
    gc.collect()
    gc.freeze()
    for name in names:
        if name != "--all":
            print(campaign(name, Path(folder) / "play", everywhere="--all" in names), name, flush=True)


if __name__ == "__main__":
    main()
