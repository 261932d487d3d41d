"""Sub-agents have no more rights than the agents above them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.loop.tool_calls.test_approval import Person, Shop
from tests.loop.toolbox import agent_of, told
from tests.rows import each_row

from steersman import Agent, Approval, Approved, ToolCall, fingerprint, tool
from steersman.policy.approval import Mode
from steersman.testing import ScriptedModel, answer, call
from steersman.tools import Tool
from steersman.types.content import ToolCall as Call


def nested(shop: Shop, calls: Sequence[Call], *levels: dict[str, Any]) -> Agent:
    """An agent whose sub-agent has a sub-agent, and so on; the innermost has the shop's tools and makes the calls."""
    *above, innermost = levels
    agent = Agent(ScriptedModel(answer(*calls), "inner done").model, tools=shop.tools, **innermost)
    for level in reversed(above):
        script = ScriptedModel(answer(call("child", prompt="do it")), "done")
        agent = Agent(script.model, tools=[agent.as_tool("child", "Does it.")], **level)
    return agent


MODES: tuple[Mode, ...] = ("ask", "accept-edits", "plan", "bypass")
RANK = {"deny": 0, "ask": 1, "allow": 2}


@each_row("child", [None, *MODES])
@each_row("parent", MODES)
async def test_a_sub_agent_may_do_what_all_agents_above_it_may_do(parent: Mode, child: Mode | None) -> None:
    """failures.md L21: the strictest of the chain decides, whatever the sub-agent's own settings are."""
    shop, person = Shop(), Person(*[False] * 9)
    calls = (call("read", path="a"), call("write", path="b"), call("deploy", targets=["c"]))
    policies = [Approval(mode) for mode in (parent, child) if mode is not None]
    expected: list[str] = []
    for used, tool_used in zip(calls, (shop.tools[0], shop.tools[1], shop.tools[3]), strict=True):
        judged = [policy.judge(tool_used, used.arguments).says for policy in policies]
        expected.append(min(judged, key=RANK.__getitem__))
    own = {} if child is None else {"approval": policies[1]}
    agent = nested(shop, calls, {"approval": policies[0], "approve": person}, own)
    await agent.run("go")
    assert [entry.split()[0] for entry in shop.log] == [
        used.name for used, outcome in zip(calls, expected, strict=True) if outcome == "allow"
    ]
    assert [name for name, *_ in person.asked] == [
        used.name for used, outcome in zip(calls, expected, strict=True) if outcome == "ask"
    ]


async def test_a_rule_of_a_parent_denies_the_call_of_a_sub_agent_of_a_sub_agent() -> None:
    """failures.md L21"""
    shop = Shop()
    wide: dict[str, Any] = {"approval": Approval("bypass"), "approve": Person(True, True)}
    narrow = {"approval": Approval("bypass", deny=["bash(rm:*)"])}
    await nested(shop, [call("bash", command="rm x"), call("bash", command="ls")], narrow, {}, wide).run("go")
    assert shop.log == ["bash ls"]


async def test_a_yes_of_the_sub_agents_own_callback_is_no_answer_to_the_parents_question() -> None:
    """failures.md L21: else a sub-agent could approve for itself what its parent has to be asked about."""
    shop, own, above = Shop(), Person(True, True), Person(False)
    child: dict[str, Any] = {"approval": Approval(), "approve": own}
    await nested(shop, [call("deploy", targets=["a"])], {"approval": Approval(), "approve": above}, child).run("go")
    assert (shop.log, len(own.asked), len(above.asked)) == ([], 0, 1)


@each_row("hooks", [{}, {"before_tool_execution": lambda asked: None}])  # pyright: ignore[reportUnknownLambdaType]  # typed as any callable
async def test_what_a_sub_agent_has_approved_does_not_run_where_its_parent_asks_by_then(hooks: dict[str, Any]) -> None:
    """Its mode counts for all calls that have not started; the parent is asked about the call when it is repeated."""
    shop, above, policy = Shop(), Person(True), Approval("bypass")
    own: list[str] = []

    async def approve(asked: ToolCall) -> bool:
        own.append(asked.name)
        policy.mode = "ask"
        return True

    deploy = call("deploy", targets=["a"])
    script = ScriptedModel(answer(deploy), answer(deploy), "done")
    child = Agent(script.model, tools=shop.tools, approval=Approval(), approve=approve, **hooks)
    asking = ScriptedModel(answer(call("child", prompt="x")), "ok")
    agent = Agent(asking.model, tools=[child.as_tool("child", "Has it done.")], approval=policy, approve=above)
    await agent.run("go")
    found = [
        result.text for request, *_ in script.requests for result in request.messages if result.role == "tool_result"
    ]
    assert found[-2].startswith("Denied: since it was approved, it has to be asked about elsewhere: 'deploy' can")
    assert (own, len(above.asked), shop.log, found[-1]) == (["deploy"], 1, ["deploy ['a']"], "done")


async def test_a_parent_that_asks_from_now_on_is_asked_where_a_question_waits_for_another() -> None:
    """Where it has no approver that denies the call, and the run goes on."""
    shop, policy = Shop(), Approval("bypass")
    asked: list[str] = []

    async def approve(waiting: ToolCall) -> bool:
        asked.append(waiting.name)
        await asyncio.sleep(1)
        policy.mode = "ask"
        return True

    def deployer(name: str) -> Any:
        script = ScriptedModel(answer(call("deploy", targets=[name])), "done")
        return Agent(script.model, tools=shop.tools).as_tool(name, "Deploys.")

    script = ScriptedModel(answer(call("one", prompt="x"), call("two", prompt="x")), "done")
    middle = Agent(script.model, tools=[deployer("one"), deployer("two")], approval=Approval(), approve=approve)
    script = ScriptedModel(answer(call("middle", prompt="x")), "ok")
    result = await Agent(script.model, tools=[middle.as_tool("middle", "Has it done.")], approval=policy).run("go")
    assert (asked, shop.log, result.end_reason) == (["deploy"], [], "done")
    assert [message.text for message in result.tool_results] == ["done"]


async def test_a_parent_that_asks_and_has_no_approver_denies() -> None:
    """failures.md L21"""
    shop, own = Shop(), Person(True)
    child: dict[str, Any] = {"approval": Approval("bypass"), "approve": own}
    await nested(shop, [call("deploy", targets=["a"])], {"approval": Approval()}, child).run("go")
    assert (shop.log, own.asked) == ([], [])


async def test_a_question_goes_to_the_nearest_who_can_answer_it_and_is_asked_once() -> None:
    shop, top, middle = Shop(), Person(), Person(True)
    agent = nested(
        shop,
        [call("deploy", targets=["a"])],
        {"approval": Approval("bypass"), "approve": top},
        {"approval": Approval(), "approve": middle},
        {"approval": Approval(ask=["deploy"])},
    )
    await agent.run("go")
    reason = "the rule 'deploy' requires approval; 'deploy' can change things and no rule allows it"
    assert (shop.log, top.asked) == (["deploy ['a']"], [])
    assert middle.asked == [("deploy", {"targets": ["a"]}, reason)]


async def test_a_sub_agent_without_a_callback_has_its_parent_asked() -> None:
    shop, person = Shop(), Person(True)
    agent = nested(shop, [call("deploy", targets=["a"])], {"approve": person}, {"approval": Approval()})
    await agent.run("go")
    assert (shop.log, len(person.asked)) == (["deploy ['a']"], 1)


async def test_what_the_parent_allows_a_sub_agent_need_not_be_asked_about() -> None:
    shop = Shop()
    agent = nested(shop, [call("bash", command="git status")], {"approval": Approval(allow=["bash(git status:*)"])}, {})
    await agent.run("go")
    assert shop.log == ["bash git status"]


async def test_a_yes_for_good_is_kept_by_the_agent_that_answered_and_by_no_policy_of_its_sub_agents() -> None:
    shop, person = Shop(), Person(Approved(remember=True))
    top, middle, inner = Approval("bypass"), Approval(), Approval(ask=["deploy"])
    agent = nested(
        shop,
        [call("deploy", targets=["a"]), call("deploy", targets=["a"])],
        {"approval": top, "approve": person},
        {"approval": middle},
        {"approval": inner},
    )
    await agent.run("go")
    assert (shop.log, len(person.asked)) == (["deploy ['a']"] * 2, 1)
    assert [policy.remembered for policy in (top, middle, inner)] == [frozenset()] * 3


@each_row("policy", [Approval(), Approval("bypass"), None])
async def test_a_yes_for_good_in_one_conversation_is_none_in_another_with_the_same_sub_agent(
    policy: Approval | None,
) -> None:
    """docs/serve.md: a sub-agent may be that of all sessions, which have users of their own."""
    paid: list[int] = []

    @tool(needs_approval=policy is None or policy.mode == "bypass")
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    inner = [turn for _ in range(3) for turn in (answer(call("pay", amount=5)), "inner done")]
    payer = Agent(ScriptedModel(*inner).model, tools=[pay], approval=policy).as_tool("payer", "Pays.")

    def make_boss(person: Person, times: int) -> Agent:
        script = ScriptedModel(answer(*[call("payer", prompt="pay")] * times), "done")
        return Agent(script.model, tools=[payer], approve=person, tool_execution="sequential")

    ann, bob = Person(Approved(remember=True)), Person(False)
    await make_boss(ann, 2).run("go")
    await make_boss(bob, 1).run("go")
    assert (len(ann.asked), len(bob.asked), paid) == (1, 1, [5, 5])


async def test_a_yes_for_good_by_the_application_is_kept_by_the_outermost_agent() -> None:
    """docs/serve.md: also where a sub-agent, which all sessions share, says itself that it waits for answers."""
    shop = Shop()
    script = ScriptedModel(*[answer(call("deploy", targets=["a"])), "done"] * 3)
    worker = Agent(script.model, tools=shop.tools, approval=Approval(), approve="wait").as_tool("worker", "Works.")
    asked: list[str] = []
    for times in (2, 1):
        script = ScriptedModel(answer(*[call("worker", prompt="x")] * times), "done")
        boss = Agent(script.model, tools=[worker], tool_execution="sequential")
        async for event in boss.prompt("go"):
            if event.type == "approval_requested":
                asked.append(event.approval_id)
                boss.approve(event.approval_id, remember=True)
    assert (len(asked), shop.log) == (2, ["deploy ['a']"] * 3)


async def test_a_yes_for_good_to_one_sub_agent_is_none_to_another_whose_tool_has_that_name() -> None:
    made: list[str] = []

    def make_worker(name: str) -> Tool:
        @tool
        def deploy() -> str:
            """Deploy."""
            made.append(name)
            return "deployed"

        worker = Agent(ScriptedModel(answer(call("deploy")), "done").model, tools=[deploy], approval=Approval())
        return worker.as_tool(name, "Deploys.")

    person = Person(Approved(remember=True), False)
    script = ScriptedModel(answer(call("staging", prompt="deploy")), answer(call("live", prompt="deploy")), "done")
    await Agent(script.model, tools=[make_worker("staging"), make_worker("live")], approve=person).run("go")
    assert (len(person.asked), made) == (2, ["staging"])


async def test_what_a_sub_agent_remembers_is_no_yes_of_its_parent() -> None:
    """failures.md L21"""
    shop = Shop()
    inner = Approval(remembered=[fingerprint("deploy", {"targets": ["a"]})])
    await nested(shop, [call("deploy", targets=["a"])], {"approval": Approval()}, {"approval": inner}).run("go")
    assert shop.log == []


async def test_two_sub_agents_ask_one_after_the_other_and_one_answer_may_serve_both() -> None:
    shop = Shop()
    waiting: list[asyncio.Future[Any]] = []

    async def approve(_: ToolCall) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        return await waiting[-1]

    def deployer(name: str) -> Any:
        script = ScriptedModel(answer(call("deploy", targets=["a"])), "done")
        return Agent(script.model, tools=shop.tools).as_tool(name, "Deploys.")

    script = ScriptedModel(answer(call("one", prompt="x"), call("two", prompt="x")), "ok")
    agent = Agent(script.model, tools=[deployer("one"), deployer("two")], approval=Approval(), approve=approve)
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    assert (len(waiting), shop.log) == (1, [])
    waiting[0].set_result(Approved(remember=True))
    result = await stream
    assert (len(waiting), shop.log, result.end_reason) == (1, ["deploy ['a']"] * 2, "done")


async def test_a_parent_that_is_stopped_takes_the_question_of_its_sub_agent_back() -> None:
    """failures.md F13"""
    shop = Shop()
    asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def approve(_: ToolCall) -> Any:
        return await asked

    agent = nested(shop, [call("deploy", targets=["a"])], {"approval": Approval(), "approve": approve}, {})
    stream = agent.prompt("go")
    await asyncio.sleep(1)
    agent.abort()
    result = await stream
    assert (result.end_reason, asked.cancelled(), shop.log) == ("aborted", True, [])


async def test_to_ask_a_sub_agent_needs_no_approval_of_its_own() -> None:
    """What it does is judged; that it thinks is not."""
    shop = Shop()
    agent = nested(shop, [call("read", path="a"), call("write", path="b")], {"approval": Approval("plan")}, {})
    result = await agent.run("go")
    assert (shop.log, [status for *_, status in told(result.messages)]) == (["read a"], ["completed"])


async def test_a_tool_that_needs_approval_inside_a_sub_agent_has_the_parent_asked() -> None:
    person = Person(True)
    ran: list[str] = []

    @tool(needs_approval=True)
    async def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    child = Agent(ScriptedModel(answer(call("act")), "done").model, tools=[act]).as_tool("child", "Acts.")
    agent, _ = agent_of(ScriptedModel(answer(call("child", prompt="x")), "ok"), [child], approve=person)
    await agent.run("go")
    assert (ran, person.asked) == (["act"], [("act", {}, "tool 'act' needs approval")])
