"""Everything a person, a model and a tool can do to a run, in any order, and what must hold all the same."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Literal, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from steersman import Agent, AgentMessage, Compaction, ContextConfig, ExecutionLimits, Retry, batched, prun, tool
from steersman.loop.inbox import Receipt
from steersman.provider.scripted.strict import find_request_fault
from steersman.testing import VirtualClockLoop, Witness, check_transcript, watch
from steersman.types.content import TextContent, ToolCall
from steersman.types.errors import ErrorInfo, ErrorKind
from steersman.types.messages import AssistantMessage
from steersman.types.model import Model, Request, StreamOptions
from steersman.types.stream import Done, Failed, StreamEvent, StreamStart, TextDelta
from steersman.types.usage import Usage

# `make fuzz` tries three thousand examples of each machine.
EXAMPLES = 3_000 if os.environ.get("STEERSMAN_SOAK") == "1" else 75
T = TypeVar("T")
Ending = Literal["return", "raise", "hang", "swallow"]


class Puppet:
    """A model whose every word is put in its mouth, and that refuses what a strict server would."""

    def __init__(self) -> None:
        self.cues: asyncio.Queue[StreamEvent | Exception | None] | None = None
        self.shown = ""
        self.refused: list[str] = []

    async def __call__(
        self, model: Model, request: Request, options: StreamOptions, /
    ) -> AsyncGenerator[StreamEvent, None]:
        fault = find_request_fault(request, model)
        if fault is not None:
            self.refused.append(fault)
        cues: asyncio.Queue[StreamEvent | Exception | None] = asyncio.Queue()
        self.cues = cues
        self.shown = ""
        try:
            yield StreamStart()
            while (cue := await cues.get()) is not None:
                if isinstance(cue, Exception):
                    raise cue
                yield cue
                if isinstance(cue, Done | Failed):
                    return
        finally:
            if self.cues is cues:
                self.cues = None

    def say(self, cue: StreamEvent | Exception | None) -> None:
        """Make the open stream go on."""
        assert self.cues is not None
        self.cues.put_nowait(cue)

    def answer(self, *calls: ToolCall) -> None:
        """Come to an end, with what was shown so far."""
        words = [TextContent(self.shown or "That is all.")]
        self.say(Done(AssistantMessage([*words, *calls], usage=Usage(input=10, output=5))))

    def show(self) -> None:
        """Say a little more."""
        self.shown += "more "
        self.say(TextDelta("more "))


class Workshop:
    """Tools that do nothing until they are told how to end."""

    def __init__(self) -> None:
        self.open: list[asyncio.Future[Ending]] = []
        self.started = 0
        self.ended = 0

    async def work(self) -> str:
        """Work until told otherwise."""
        self.started += 1
        told: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.open.append(told)
        try:
            return await self._obey(told)
        finally:
            self.ended += 1
            if told in self.open:
                self.open.remove(told)

    async def _obey(self, told: asyncio.Future[Ending]) -> str:
        try:
            ending = await told
        except asyncio.CancelledError:
            if self.started % 3 == 0:  # one in three swallows its cancel
                return "swallowed"
            raise
        if ending == "raise":
            raise RuntimeError("told to")
        if ending == "hang":
            await asyncio.sleep(10_000)
        if ending == "swallow":
            try:
                await asyncio.sleep(10_000)
            except asyncio.CancelledError:
                await asyncio.sleep(0.05)
        return "worked"


class Conversation(RuleBasedStateMachine):
    """One agent, and everything that can happen to it."""

    execution: Any = "parallel"

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualClockLoop(patience=0.01)
        self.puppet = Puppet()
        self.workshop = Workshop()
        self.said: list[str] = []
        self.receipts: list[Receipt] = []
        self.count = 0
        self.agent: Agent
        self.witness: Witness

    @initialize(
        steering=st.sampled_from(["skip", "cancel", "wait"]),
        queue_mode=st.sampled_from(["one-at-a-time", "all"]),
        max_turns=st.sampled_from([3, 50]),
        window=st.sampled_from([600, 200_000]),
    )
    def begin(self, steering: Any, queue_mode: Any, max_turns: int, window: int) -> None:
        """Set the stage."""
        work = tool(name="work")(self.workshop.work)
        lone = tool(name="lone", sequential=True)(self.workshop.work)
        self.agent = Agent(
            "puppet:one",
            stream_fn=self.puppet,
            tools=[work, lone, prun],
            steering=steering,
            steering_mode=queue_mode,
            follow_up_mode=queue_mode,
            tool_execution=self.execution,
            limits=ExecutionLimits(max_turns=max_turns),
            context_config=ContextConfig(max_context_tokens=window, threshold=0.5, keep_recent=2),
            retry=Retry(max_attempts=2, base_delay=1.0, jitter=0),
        )
        self.witness = watch(self.agent)

    # What a person does

    @precondition(lambda self: not self.agent.is_running)
    @rule()
    def prompt(self) -> None:
        """Speak to an idle agent."""
        words = self._words("prompt")
        self._do(lambda: self.agent.prompt(words))

    @precondition(lambda self: self.agent.is_running)
    @rule()
    def prompt_a_busy_agent(self) -> None:
        """A second prompt is refused before it touches anything."""
        before = len(self.agent.messages)
        try:
            self._do(lambda: self.agent.prompt("refused"))
        except RuntimeError as error:
            assert "running" in str(error)  # noqa: PT017  # a rule cannot use pytest.raises around the loop's callback
        else:
            raise AssertionError("a busy agent took a prompt")
        assert len(self.agent.messages) >= before

    @rule(mode=st.sampled_from([None, "skip", "cancel", "wait"]))
    def steer(self, mode: Any) -> None:
        """Steer, running or not."""
        words = self._words("steer")
        self.receipts.append(self.agent.steer(words, mode))
        self._step()

    @rule()
    def follow_up(self) -> None:
        """Queue a follow-up, running or not."""
        self.receipts.append(self.agent.follow_up(self._words("follow")))
        self._step()

    @rule()
    def abort(self) -> None:
        """Interrupt, running or not."""
        self.agent.abort()
        self._step()

    @precondition(lambda self: not self.agent.is_running and len(self.agent.messages) > 0)
    @rule()
    def go_on(self) -> None:
        """Continue, where there is something to answer."""
        try:
            self._do(self.agent.continue_)
        except ValueError as error:
            assert "nothing" in str(error)  # noqa: PT017

    @precondition(lambda self: not self.agent.is_running and len(self.agent.messages) > 0)
    @rule()
    def compact(self) -> None:
        """Continue with a compaction first."""
        try:
            self._do(lambda: self.agent.continue_(Compaction()))
        except ValueError as error:
            assert "nothing" in str(error)  # noqa: PT017

    @precondition(lambda self: not self.agent.is_running and len(self.agent.messages) > 0)
    @rule(data=st.data())
    def branch(self, data: st.DataObject) -> None:
        """Go another way from anywhere."""
        at = data.draw(st.integers(0, len(self.agent.messages) - 1))
        words = self._words("branch")
        self._do(lambda: self.agent.branch(at, prompt=words))
        # What the branch leaves behind is in the log it came from, not lost.
        self.said = [said for said in self.said if said in self._texts() or said in self._waiting() or said == words]

    # What a model does

    @precondition(lambda self: self.puppet.cues is not None)
    @rule()
    def show_a_delta(self) -> None:
        """The model says a little more."""
        self.puppet.show()
        self._step()

    @precondition(lambda self: self.puppet.cues is not None)
    @rule()
    def finish(self) -> None:
        """The model answers."""
        self.puppet.answer()
        self._step()

    @precondition(lambda self: self.puppet.cues is not None)
    @rule(names=st.lists(st.sampled_from(["work", "work", "lone", "nobody"]), min_size=1, max_size=4))
    def ask_for_tools(self, names: list[str]) -> None:
        """The model asks for tools; the ids repeat, as some servers' do."""
        self.puppet.answer(*(ToolCall(f"call_{number}", name) for number, name in enumerate(names)))
        self._step()

    @precondition(lambda self: self.puppet.cues is not None)
    @rule()
    def ask_to_prun(self) -> None:
        """The model drops some of its own work."""
        self.puppet.answer(ToolCall("call_0", "prun", {"tokens": 20}))
        self._step()

    @precondition(lambda self: self.puppet.cues is not None)
    @rule(kind=st.sampled_from(["overloaded", "invalid_request", "context_overflow", "refused"]))
    def fail(self, kind: ErrorKind) -> None:
        """The model fails."""
        info = ErrorInfo(kind, f"puppet: {kind}")
        reason = "refusal" if kind == "refused" else "error"
        shown = [TextContent(self.puppet.shown)] if self.puppet.shown else []
        self.puppet.say(Failed(AssistantMessage(shown, stop_reason=reason, error_message=info.message), info))
        self._step()

    @precondition(lambda self: self.puppet.cues is not None)
    @rule(cue=st.sampled_from([None, ConnectionError("gone"), ValueError("odd")]))
    def break_off(self, cue: Exception | None) -> None:
        """The stream breaks off."""
        self.puppet.say(cue)
        self._step()

    # What a tool does, and time

    @precondition(lambda self: any(not told.done() for told in self.workshop.open))
    @rule(ending=st.sampled_from(["return", "raise", "hang", "swallow"]), data=st.data())
    def end_a_tool(self, ending: Ending, data: st.DataObject) -> None:
        """A tool finishes, raises, hangs, or gets ready to swallow its cancel."""
        told = data.draw(st.sampled_from([told for told in self.workshop.open if not told.done()]))
        told.set_result(ending)
        self._step()

    @rule(seconds=st.sampled_from([0.1, 2, 700]))
    def wait(self, seconds: float) -> None:
        """Time passes, sometimes more than a run may take."""
        self._run(asyncio.sleep(seconds))

    # What must hold

    @invariant()
    def nothing_is_lost_or_doubled(self) -> None:
        """Every accepted message is in the transcript or in a queue, once."""
        if not hasattr(self, "agent"):
            return
        places = Counter(self._texts()) + Counter(self._waiting())
        assert {words: places[words] for words in self.said} == dict.fromkeys(self.said, 1)
        for receipt in self.receipts:
            assert (receipt.status == "delivered") == (receipt.message.text not in self._waiting())

    @invariant()
    def every_event_and_request_is_in_order(self) -> None:
        """The grammar holds so far, and no request was one a strict server refuses."""
        if hasattr(self, "agent"):
            assert self.witness.faults == []
            assert self.puppet.refused == []

    def teardown(self) -> None:
        """Interrupt what goes on; then nothing is left, and the agent still answers."""
        if not hasattr(self, "agent"):
            self.loop.close()
            return
        try:
            self.agent.abort()
            self._run(self.agent.wait_for_idle())
            check_transcript(self.agent.messages)
            self.every_event_and_request_is_in_order()
            self.nothing_is_lost_or_doubled()
            self._last_words()
            self.witness.check()
            self._run(asyncio.sleep(20_000))
            assert self.workshop.started == self.workshop.ended
            assert asyncio.all_tasks(self.loop) == set()
            assert self.loop.faults == []
        finally:
            self.loop.close()

    def _last_words(self) -> None:
        self.agent.clear_queue()
        words = self._words("last")
        self._do(lambda: self.agent.prompt(words))
        while self.agent.is_running:
            if self.puppet.cues is not None:
                self.puppet.answer()
            self._run(asyncio.sleep(1))
        assert words in self._texts()
        check_transcript(self.agent.messages)

    # How it is done

    def _words(self, kind: str) -> str:
        self.count += 1
        words = f"{kind} {self.count}"
        self.said.append(words)
        return words

    def _texts(self) -> list[str]:
        return [_text(message) for message in self.agent.messages if message.role == "user" and not message.synthetic]

    def _waiting(self) -> list[str]:
        queued = self.agent.queued
        return [_text(message) for message in (*queued.steering, *queued.follow_up)]

    def _do(self, action: Callable[[], object]) -> None:
        """Do something on the event loop, and let a few things happen."""

        async def act() -> None:
            action()

        self._run(act())
        self._step()

    def _step(self) -> None:
        self._run(_few_steps())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)


def _text(message: AgentMessage) -> str:
    return message.text


async def _few_steps() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


class BatchedConversation(Conversation):
    """The same with tools in groups of two."""

    execution = batched(2)


SETTINGS = settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None)

# loop.md D1, T11, T12 and section 6; failures.md invariants I1 to I5 and I11 to I14.
TestConversation = Conversation.TestCase
TestConversation.settings = SETTINGS
TestBatchedConversation = BatchedConversation.TestCase
TestBatchedConversation.settings = SETTINGS
